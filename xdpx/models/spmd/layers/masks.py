"""Attention masks: booleans of shape (B or 1, 1, T, S), true where query t may attend to key s."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def causal_mask(length: int) -> jax.Array:
    """Return the causal mask (1, 1, length, length): each token attends to itself and earlier ones."""
    steps = jnp.arange(length)
    return (steps[:, None] >= steps[None, :])[None, None]


def segment_mask(query_segments: jax.Array, key_segments: jax.Array | None = None) -> jax.Array:
    """Return the mask of attention within segments.

    Args:
        query_segments: int (B, T); padding is segment 0, treated like any other.
        key_segments: int (B, S); None: the same.

    Returns:
        (B, 1, T, S).
    """
    keys = query_segments if key_segments is None else key_segments
    return (query_segments[:, :, None] == keys[:, None, :])[:, None]


def padding_mask(paddings: jax.Array) -> jax.Array:
    """Return the mask (B, 1, 1, S) of all keys but padding; `paddings` (B, S) is 1 at padding."""
    return (paddings < 0.5)[:, None, None, :]


def prefix_mask(prefix: jax.Array) -> jax.Array:
    """Return the mask of attention to the whole prefix, and to itself and earlier tokens.

    Args:
        prefix: (B, T), nonzero (or true) at tokens of the prefix.

    Returns:
        (B, 1, T, T).
    """
    return causal_mask(prefix.shape[1]) | (prefix > 0)[:, None, None, :]


def all_of(*masks: jax.Array | None) -> jax.Array | None:
    """Return the conjunction of masks; None allows everything."""
    whole: jax.Array | None = None
    for mask in masks:
        whole = mask if whole is None else whole if mask is None else whole & mask
    return whole


def lowest(dtype: DTypeLike = jnp.float32) -> float:
    """Return a very low finite number: with -inf, rows without any visible key would be NaN."""
    limits: Any = jnp.finfo
    return -0.7 * float(limits(dtype).max)
