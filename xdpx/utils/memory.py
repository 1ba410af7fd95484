"""How much memory this process may take: what the machine has, and what its container allows; and when it ran out.

That it ran out is told by the words of an error, whichever library raised it; nothing is imported for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from xdpx.utils.retries import causes

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where a container's limit and use stand, in bytes, under the second and the first version of control groups."""

TEXTS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED", "failed to map segment from shared object", "can't start new thread",
    "RESOURCE_EXHAUSTED", "unable to allocate",
)  # fmt: skip
"""What allocators, the loader of shared objects and the starter of threads say, in torch, NumPy, JAX and Python."""

NEARLY_ALL = 0.9


def total_memory() -> int:
    """Return the bytes of memory that this process may have: its container's or all of the machine; 0 if unknown."""
    return min((size for size in (_machine_memory(), *(limit for limit, _ in _limits())) if size), default=0)


def available_memory() -> int:
    """Return the bytes that programs can still have; all of it where the system does not say."""
    left = [max(0, limit - used) for limit, used in _limits()]
    with suppress(OSError, StopIteration, ValueError):
        facts = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()  # facts of the kernel
        line = next(line for line in facts if line.startswith("MemAvailable:"))
        left.append(int(line.split()[1]) * 1024)
    return min(left, default=_machine_memory())


def _machine_memory() -> int:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _limits(files: Iterable[tuple[str, str]] = CGROUPS) -> list[tuple[int, int]]:
    """Return the limit and the use of this container, where there is a limit."""
    machine, found = _machine_memory(), []
    for limit_file, used_file in files:
        with suppress(OSError, ValueError):  # none, or "max"
            limit = int(Path(limit_file).read_text(encoding="utf-8"))
            if limit < machine:  # the first version writes a huge number for none
                found.append((limit, int(Path(used_file).read_text(encoding="utf-8"))))
    return found


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError | OSError) and any(each.lower() in text for each in TEXTS)


def comes_of_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out for an error, for what it was raised from, or for what was being handled.

    A library whose import ran out of memory half way fails later, for want of what it had not defined; so an error of
    an import counts, too, where this process has come to the limit that was set for it (`ulimit -v`).
    """
    if any(map(is_out_of_memory, causes(error, handled=True))):
        return True
    return isinstance(error, ImportError | SystemError) and _share_used() > NEARLY_ALL


def _share_used() -> float:
    """Return the most address space that this process has had, as a part of what it may have; 0 without a limit."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            return _peak() / limit
    return 0.0


def _peak() -> int:
    from xdpx.utils.io_utils import io

    with io.open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmPeak:"))
    return int(peak.split()[1]) * 1024
