import ctypes
import resource
import sys

import pytest
import torch

from xdpx.engines.pytorch.memory import MemoryWatch, keep_freed_memory, release_cached
from xdpx.engines.pytorch.out_of_memory import with_fitting_batches


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_large_tensors_are_no_longer_mapped_anew_at_every_step():
    assert keep_freed_memory()
    for _ in range(20):
        torch.zeros(12_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(12_000_000)
    # Each of the ten would touch 11,719 new pages.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 40_000


def test_a_device_that_keeps_memory_is_asked_to_give_it_back(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("cuda"))
    release_cached(torch.device("cuda"))
    release_cached(torch.device("cpu"))
    assert asked == ["cuda"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_what_a_stage_takes_is_told_in_bytes() -> None:
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests left would be used again
    watch = MemoryWatch(torch.device("cpu"))
    kept = torch.ones(50_000_000)
    metrics = watch.metrics("train")
    assert metrics.keys() == {"train_mem_cpu_alloc_delta", "train_mem_cpu_peaked_delta"}
    assert metrics["train_mem_cpu_alloc_delta"] > 2 * kept.numel()
    of_init = watch.metrics("init")
    assert of_init["before_init_mem_cpu"] > 0
    assert of_init.keys() - metrics.keys() == {
        "init_mem_cpu_alloc_delta", "init_mem_cpu_peaked_delta", "before_init_mem_cpu",
    }  # fmt: skip
    assert MemoryWatch(torch.device("cpu"), wanted=False).metrics("train") == {}


def test_memory_runs_out_until_batches_are_small_enough() -> None:
    tried: list[int] = []

    def attempt(size: int) -> str:
        tried.append(size)
        if size > 8:
            raise MemoryError
        return "done"

    begun: list[None] = []
    assert with_fitting_batches(attempt, 10, lambda: begun.append(None)) == "done"
    assert (tried, len(begun)) == ([10, 9, 8], 2)


def test_not_even_one_sample_fits() -> None:
    def attempt(size: int) -> str:
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="not even a batch of one sample"):
        with_fitting_batches(attempt, 2, lambda: None)
