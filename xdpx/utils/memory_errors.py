"""Tell by its words that an error means too little memory, whichever library raised it; nothing is imported for it."""

from __future__ import annotations

import errno
from contextlib import suppress

from xdpx.utils.retries import causes

TEXTS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED", "failed to map segment from shared object", "can't start new thread",
    "RESOURCE_EXHAUSTED", "unable to allocate",
)  # fmt: skip
"""What allocators, the loader of shared objects and the starter of threads say, in torch, NumPy, JAX and Python."""

NEARLY_ALL = 0.9


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
