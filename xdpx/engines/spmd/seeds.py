"""Random keys for seeds of any size. `jax.random.key` ignores all bits of a seed above the lowest 32."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

WORD = 2**32


def key_of(seed: int) -> Any:
    """Return the random key of a seed; below 2**32 it is `jax.random.key(seed)`."""
    return with_high_bits(jax.random.key(np.uint32(seed % WORD)), seed // WORD)


def with_high_bits(key: Any, high: int) -> Any:
    """Return the key of a seed from that of its lowest 32 bits; `high` is the seed divided by 2**32, rounded down."""
    while high not in {0, -1}:
        key = jax.random.fold_in(key, np.uint32(high % WORD))
        high //= WORD
    return key
