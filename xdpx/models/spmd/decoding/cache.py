"""Key-value cache of the tokens so far, so that decoding computes one position per new token.

B rows, T new tokens, S slots, N heads, H width per head.

Slot and position are the same number: the token at position p of a row is in slot p of that row, whatever the lengths
of the other rows. A slot is visible from its own position on, and by then it has been written, so that padding of a
short prompt is never attended to.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from xdpx.models.spmd.sharding import constrain

COLLECTION = "decoder_cache"
"""The flax collection of the cache; a scan over layers stacks it on axis 0, like weights."""

_slots: ContextVar[int] = ContextVar("slots", default=0)


class Extended(NamedTuple):
    """Keys and values to attend to while decoding.

    Attributes:
        key: of all slots, shape (B, S, N, H).
        value: the same shape.
        visible: which slots each new token attends to, shape (B, 1, T, S); true is visible.
        positions: of the slots, shape (1, S).
    """

    key: jax.Array
    value: jax.Array
    visible: jax.Array
    positions: jax.Array


@contextmanager
def caching(slots: int) -> Generator[None]:
    """Let attention traced inside store its keys and values in `slots` slots; 0 turns it off."""
    token = _slots.set(slots)
    try:
        yield
    finally:
        _slots.reset(token)


def num_slots() -> int:
    """Return the number of slots of the surrounding `caching`, 0 outside."""
    return _slots.get()


def extend(module: nn.Module, key: jax.Array, value: jax.Array, positions: jax.Array) -> Extended | None:
    """Write the new tokens into the cache of an attention layer, and return all keys and values to attend to.

    The same call stores a whole prompt, with any T, or one more token, T = 1.

    Args:
        module: the layer, whose collection `decoder_cache` holds both; they are created if missing.
        key: of the new tokens, shape (B, T, N, H), after rotation if positions are rotary.
        value: the same shape.
        positions: of the new tokens, shape (B, T).

    Returns:
        None outside `caching`: attend to the new tokens only.
    """
    slots = num_slots()
    if not slots:
        return None
    kept = [
        _written(module, name, new, positions, slots) for name, new in (("cached_key", key), ("cached_value", value))
    ]
    numbers = jnp.arange(slots, dtype=positions.dtype)[None]
    visible = numbers[:, None, :] <= positions[:, :, None]
    return Extended(kept[0], kept[1], visible[:, None], numbers)


def _written(module: nn.Module, name: str, new: jax.Array, positions: jax.Array, slots: int) -> jax.Array:
    kept: Any = module.get_variable(COLLECTION, name)
    if kept is None:
        kept = jnp.zeros((new.shape[0], slots, *new.shape[2:]), new.dtype)
    # A finished row may get a position beyond its last slot: such a write is dropped, not wrapped. By vmap over rows,
    # so that rows on different devices stay there.
    written = jax.vmap(lambda row, at, values: row.at[at].set(values, mode="drop"))(kept, positions, new)
    placed = constrain(written, ("activation_batch", "activation_length", "activation_heads", "activation_kv"))
    module.put_variable(COLLECTION, name, placed)
    return placed


def repeated_rows(cache: Mapping[str, Any], times: int) -> Any:
    """Repeat every row of a cache, for several samples or beams of one prompt.

    Args:
        cache: the collection, a tree of arrays.
        times: row b becomes rows b * times up to (b + 1) * times - 1.
    """
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=row_axis(leaf)), cache)


def chosen_rows(cache: Mapping[str, Any], rows: jax.Array) -> Any:
    """Return a cache whose row i is row `rows[i]` of the given one."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=row_axis(leaf)), cache)


def row_axis(leaf: jax.Array) -> int:
    """Return the axis of the rows: the fourth from the end, after axes added by stacks of layers."""
    return leaf.ndim - 4
