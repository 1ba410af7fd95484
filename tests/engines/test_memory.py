import resource
import sys

import pytest
import torch

from xdpx.engines.pytorch.memory import keep_freed_memory, release_cached


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
