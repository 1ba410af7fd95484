"""Memory: let the C library keep it between steps, release device caches, and measure what a stage takes."""

from __future__ import annotations

import ctypes
import resource
import sys

import torch

from xdpx.utils import io

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 1 << 30
PAD = 64 << 20


def keep_freed_memory() -> bool:
    """Make glibc reuse blocks up to 1 GiB instead of mapping them at every step; return whether that was possible.

    By default glibc maps every large block afresh, and the kernel fills each of its pages with zeros at first touch:
    a training step on a CPU allocates hundreds of megabytes of activations and gradients. Has no effect without glibc.

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
    """Return memory cached by torch to the device, for kinds of devices with a cache."""
    if device.type in {"cuda", "mps", "xpu"}:
        torch.get_device_module(device).empty_cache()


class MemoryWatch:
    """Measures the memory that a stage of work takes: of the process on the host, and on its CUDA device.

    Args:
        device: where the work is done.
        wanted: whether to measure; if false, `metrics` returns {}.
    """

    def __init__(self, device: torch.device, *, wanted: bool = True) -> None:
        self._wanted, self._cuda = wanted, device.type == "cuda"
        if wanted and self._cuda:
            torch.cuda.reset_peak_memory_stats(device)
        self._before = self._used() if wanted else (0, 0)

    def metrics(self, stage: str) -> dict[str, int]:
        """Return the change in bytes since the start (`<stage>_mem_{cpu,gpu}_alloc_delta`) and the peak above both.

        The peak above both ends, named `_peaked_delta`, is memory that was released again. Of the stage "init" there is
        also what was in use when it began (`before_init_mem_{cpu,gpu}`).
        """
        if not self._wanted:
            return {}
        now = self._used()
        peaks = _most_resident(), torch.cuda.max_memory_allocated() if self._cuda else 0
        found = {}
        for kind, before, after, peak in zip(("cpu", "gpu"), self._before, now, peaks, strict=True):
            if kind == "cpu" or self._cuda:
                found[f"{stage}_mem_{kind}_alloc_delta"] = after - before
                found[f"{stage}_mem_{kind}_peaked_delta"] = max(0, peak - max(before, after))
                if stage == "init":
                    found[f"before_init_mem_{kind}"] = before
        return found

    def _used(self) -> tuple[int, int]:
        return resident_bytes(), torch.cuda.memory_allocated() if self._cuda else 0


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or its peak on systems without /proc."""
    try:
        with io.open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return _most_resident()


def peak_bytes() -> tuple[int, str]:
    """Return the peak memory in bytes and a label: "GPU " if PyTorch has used one, "" for this process on the host."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves this untyped
        return torch.cuda.max_memory_allocated(), "GPU "
    return _most_resident(), ""


def _most_resident() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
