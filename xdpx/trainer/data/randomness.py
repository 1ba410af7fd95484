"""The global random generators of the host: what state they are in, set aside, put back."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch

WATCHED_BATCHES = 2
"""Batches after which it is known from which generators the making of batches draws."""


class Randomness(NamedTuple):
    """States of the generators of Python, NumPy and torch on the host. Those of devices are not touched by data.

    None stands for a generator that is left out.
    """

    python: Any
    numpy: Any
    torch: torch.Tensor

    @classmethod
    def now(cls, *, python: bool = True, numpy: bool = True) -> Self:
        """Take the states as they are. Those of Python and NumPy take ten and fifty times as long as that of torch."""
        return cls(
            random.getstate() if python else None,
            np.random.get_state() if numpy else None,
            torch.default_generator.get_state(),
        )

    def put_back(self) -> None:
        """Let them go on from here."""
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)

    def saved(self) -> dict[str, Any]:
        """Return it in plain values and tensors, which load without trust."""
        numpy = None
        if self.numpy is not None:
            name, keys, place, has_gauss, gauss = self.numpy
            numpy = [str(name), torch.from_numpy(keys.astype(np.int64)), int(place), int(has_gauss), float(gauss)]
        return {"python": self.python, "numpy": numpy, "torch": self.torch}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any]) -> Self:
        """Make it of what `saved` gave."""
        python, numpy = saved["python"], saved["numpy"]
        if python is not None:
            version, keys, gauss = python
            python = (version, tuple(keys), gauss)
        if numpy is not None:
            name, numpy_keys, *rest = numpy
            numpy = (name, numpy_keys.numpy().astype(np.uint32), *rest)
        return cls(python, numpy, saved["torch"])


class StateWatch:
    """Takes the states before each batch is made: all of them at first, then those that batches draw from."""

    def __init__(self) -> None:
        self._left = WATCHED_BATCHES
        self._drawn = {"python": False, "numpy": False}
        self._before: Randomness | None = None

    def before(self) -> Randomness:
        """Take the states that the next batch is made with."""
        self._before = Randomness.now() if self._left else Randomness.now(**self._drawn)
        return self._before

    def after(self) -> None:
        """Look, after one of the first batches, which generators have moved."""
        if self._left == 0 or self._before is None:
            return
        self._left -= 1
        now = Randomness.now()
        self._drawn["python"] |= now.python != self._before.python
        self._drawn["numpy"] |= now.numpy[2:] != self._before.numpy[2:] or bool(
            (now.numpy[1] != self._before.numpy[1]).any()
        )


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
