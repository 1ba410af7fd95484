"""One seed for all random numbers of a process."""

from __future__ import annotations

from typing import Any

from transformers import trainer_utils


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch; `deterministic` lets torch compute the same way each time."""
    trainer_utils.set_seed(seed, deterministic=deterministic)


def seed_from(args: Any) -> None:
    """Seed as the arguments of a training say."""
    (trainer_utils.enable_full_determinism if args.full_determinism else trainer_utils.set_seed)(args.seed)
