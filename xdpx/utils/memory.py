"""Host memory: how much the machine has and its container allows, and which errors mean that memory ran out.

Out-of-memory errors of libraries are recognised by their messages, so that no library is imported for it.
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
"""Files with a container's limit and use, in bytes, for cgroups v2 and v1."""

TEXTS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED", "failed to map segment from shared object", "can't start new thread",
    "RESOURCE_EXHAUSTED", "unable to allocate",
)  # fmt: skip
"""Parts of the messages of allocators, the dynamic loader and thread creation, in torch, NumPy, JAX and Python."""

NEARLY_ALL = 0.9


def total_memory() -> int:
    """Return the memory of this process in bytes: the limit of its container or all of the machine; 0 if unknown."""
    return min((size for size in (_machine_memory(), *(limit for limit, _ in _limits())) if size), default=0)


def available_memory() -> int:
    """Return the free memory in bytes, within the limit of the container; the machine's total if it is unknown."""
    left = [max(0, limit - used) for limit, used in _limits()]
    with suppress(OSError, StopIteration, ValueError):
        facts = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        line = next(line for line in facts if line.startswith("MemAvailable:"))
        left.append(int(line.split()[1]) * 1024)
    return min(left, default=_machine_memory())


def _machine_memory() -> int:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _limits(files: Iterable[tuple[str, str]] = CGROUPS) -> list[tuple[int, int]]:
    """Return (limit, use) in bytes for every cgroup limit below the memory of the machine."""
    machine, found = _machine_memory(), []
    for limit_file, used_file in files:
        with suppress(OSError, ValueError):  # none, or "max"
            limit = int(Path(limit_file).read_text(encoding="utf-8"))
            if limit < machine:  # cgroups v1 writes a huge number for "no limit"
                found.append((limit, int(Path(used_file).read_text(encoding="utf-8"))))
    return found


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory, of host or device, ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError | OSError) and any(each.lower() in text for each in TEXTS)


def comes_of_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, its cause, or its context means that memory ran out.

    A library whose import ran out of memory halfway fails later because of missing names. So an import error counts,
    too, if this process has used over 90 % of its address space limit (`ulimit -v`).
    """
    if any(map(is_out_of_memory, causes(error, handled=True))):
        return True
    return isinstance(error, ImportError | SystemError) and _share_used() > NEARLY_ALL


def _share_used() -> float:
    """Return the peak address space of this process as a fraction of its limit; 0 without a limit."""
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
