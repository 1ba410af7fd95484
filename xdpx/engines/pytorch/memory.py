"""Memory that nothing uses just now: kept by the C library between steps, given back by devices when asked."""

from __future__ import annotations

import ctypes
import sys

import torch

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


def release_cached(device: torch.device) -> None:
    """Give the memory that torch keeps for later back to the device, where the kind of device keeps any."""
    if device.type in {"cuda", "mps", "xpu"}:
        torch.get_device_module(device).empty_cache()
