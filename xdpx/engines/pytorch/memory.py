"""Keep the C library from giving memory back to the system between the steps of a training."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 1 << 30
PAD = 64 << 20


def keep_freed_memory() -> bool:
    """Let blocks up to 1 GiB be reused instead of mapped and unmapped at every step; True when it was possible.

    By default glibc maps every large block anew, and the kernel fills each of its pages with zeros at first touch:
    a training step on a CPU allocates hundreds of megabytes of activations and gradients. Only glibc knows how.

    Source: mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return False
    settings = ((M_MMAP_THRESHOLD, LARGEST), (M_TRIM_THRESHOLD, LARGEST * 2 - 1), (M_TOP_PAD, PAD))
    return all(bool(mallopt(name, value)) for name, value in settings)
