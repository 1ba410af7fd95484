"""Seed the global random generators of Python, NumPy and torch, from which code of users often draws."""

from __future__ import annotations

import random
import sys
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np


def seed_python_and_numpy(seed: int) -> None:
    """Seed the generators of Python and NumPy."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_all(seed: int) -> None:
    """Seed the generators of Python and NumPy, and those of torch on every device if anything has imported it."""
    seed_python_and_numpy(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def states() -> tuple[object, ...]:
    """Return the states of all generators, those of GPUs only if they are used; any number drawn changes them."""
    numpy: tuple[object, ...] = np.random.get_state(legacy=True)  # type: ignore[assignment]
    found = [random.getstate(), *(each.tobytes() if isinstance(each, np.ndarray) else each for each in numpy)]
    torch = sys.modules.get("torch")
    if torch is not None:
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        found += [each.numpy().tobytes() for each in (torch.get_rng_state(), *devices)]
    return tuple(found)


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed all generators inside, and restore those of the host afterwards."""
    python, numpy, torch = random.getstate(), np.random.get_state(), sys.modules.get("torch")
    state = torch.get_rng_state() if torch is not None else None
    seed_all(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(state)
