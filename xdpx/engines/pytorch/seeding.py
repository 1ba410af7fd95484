"""One seed for all random numbers of a process."""

from __future__ import annotations

import random

import numpy as np
import torch

from xdpx.engines.pytorch.kernels import require_deterministic


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch; `deterministic` makes torch use deterministic algorithms.

    The random numbers are the same as after `transformers.set_seed`, which is not called because importing it takes
    seconds, even if no model of that library is trained.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # for every device, including those of other vendors
    if deterministic:
        torch.use_deterministic_algorithms(True)


def seed_training(seed: int, *, full_determinism: bool) -> None:
    """Seed at the start of training; with `full_determinism` torch raises for nondeterministic operations."""
    set_seed(seed)
    if full_determinism:
        require_deterministic()
