"""The global random generators of the host: what state they are in, set aside, put back."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch


class Randomness(NamedTuple):
    """States of the generators of Python, NumPy and torch on the host. Those of devices are not touched by data."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @classmethod
    def now(cls) -> Self:
        """Take the states as they are."""
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state())

    def put_back(self) -> None:
        """Let all three go on from here."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)

    def saved(self) -> dict[str, Any]:
        """Give it in plain values and tensors, which load without trust."""
        name, keys, place, has_gauss, gauss = self.numpy
        numpy = [str(name), torch.from_numpy(keys.astype(np.int64)), int(place), int(has_gauss), float(gauss)]
        return {"python": self.python, "numpy": numpy, "torch": self.torch}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any]) -> Self:
        """Make it of what `saved` gave."""
        version, keys, gauss = saved["python"]
        name, numpy_keys, *rest = saved["numpy"]
        numpy = (name, numpy_keys.numpy().astype(np.uint32), *rest)
        return cls((version, tuple(keys), gauss), numpy, saved["torch"])


@contextmanager
def untouched() -> Generator[None]:
    """Leave the generators as they were found."""
    before = Randomness.now()
    try:
        yield
    finally:
        before.put_back()


def seed_worker(worker_index: int, num_workers: int, rank: int) -> None:
    """Seed a loader process: `num_workers * rank` from what torch has drawn for it, so that no two are alike.

    Args:
        worker_index: torch gives it; the drawn seed holds it already.
        num_workers: loader processes of a rank.
        rank: whose worker this is.
    """
    del worker_index
    seed = num_workers * rank + torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
