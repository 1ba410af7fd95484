"""Which tokens see which: boolean masks of shape (B or 1, 1, T, S), true where query t sees key s."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def causal_mask(length: int) -> jax.Array:
    """Let every token see itself and those before it. Shape (1, 1, length, length)."""
    steps = jnp.arange(length)
    return (steps[:, None] >= steps[None, :])[None, None]


def segment_mask(query_segments: jax.Array, key_segments: jax.Array | None = None) -> jax.Array:
    """Let tokens see tokens of their own segment only.

    Args:
        query_segments: int (B, T); 0 is padding, which is a segment like another.
        key_segments: int (B, S); None: the same.

    Returns:
        (B, 1, T, S).
    """
    keys = query_segments if key_segments is None else key_segments
    return (query_segments[:, :, None] == keys[:, None, :])[:, None]


def padding_mask(paddings: jax.Array) -> jax.Array:
    """Let nobody see padding. `paddings` (B, S) is 1 at padding; gives (B, 1, 1, S)."""
    return (paddings < 0.5)[:, None, None, :]


def prefix_mask(prefix: jax.Array) -> jax.Array:
    """Let every token see the whole prefix, and itself and those before it.

    Args:
        prefix: (B, T), nonzero (or true) at tokens of the prefix.

    Returns:
        (B, 1, T, T).
    """
    return causal_mask(prefix.shape[1]) | (prefix > 0)[:, None, None, :]


def all_of(*masks: jax.Array | None) -> jax.Array | None:
    """Return the mask that allows what all of them allow; None allows everything."""
    whole: jax.Array | None = None
    for mask in masks:
        whole = mask if whole is None else whole if mask is None else whole & mask
    return whole


def lowest(dtype: DTypeLike = jnp.float32) -> float:
    """Return a very negative finite number: infinities make NaN of rows that see nothing."""
    limits: Any = jnp.finfo
    return -0.7 * float(limits(dtype).max)
