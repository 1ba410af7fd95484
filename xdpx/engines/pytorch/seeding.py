"""One seed for all random numbers of a process."""

from __future__ import annotations

import random

import numpy as np
import torch

from xdpx.engines.pytorch.kernels import require_deterministic


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch; `deterministic` lets torch compute the same way each time.

    The numbers are those after `transformers.set_seed`, which is not called: it takes seconds to import, also where no
    model of that library is trained.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # of every device, those of other makers included
    if deterministic:
        torch.use_deterministic_algorithms(True)


def seed_training(seed: int, *, full_determinism: bool) -> None:
    """Seed as a training begins; with `full_determinism` torch refuses operations that add up in any order."""
    set_seed(seed)
    if full_determinism:
        require_deterministic()
