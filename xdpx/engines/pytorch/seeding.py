"""One seed for all random numbers of a process."""

from __future__ import annotations

from transformers.trainer_utils import set_seed as seed_all  # bound here: users put ours in the place of the original

from xdpx.engines.pytorch.kernels import require_deterministic


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch; `deterministic` lets torch compute the same way each time."""
    seed_all(seed, deterministic=deterministic)


def seed_training(seed: int, *, full_determinism: bool) -> None:
    """Seed as a training begins; with `full_determinism` torch refuses operations that add up in any order."""
    seed_all(seed)
    if full_determinism:
        require_deterministic()
