"""A function of tokens and weights, a chunk of tokens at a time: what it makes for all of them never exists together.

What is made for a chunk is looked at, forgotten, and made again in the backward pass. Each device goes through its own
tokens with its own copy of the weights, whose gradient is summed up in the type in which they are stored, and over
devices once, behind the last chunk.

B rows, T tokens, C tokens of a row in a chunk; G and L parts into which devices split B and T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.models.spmd.sharding import Axes, constrain, num_parts

LARGE = 64 * 2**20
"""Bytes of float32 (B, T, V) on one device above which it is made in chunks."""

CHUNK_TOKENS, CHUNK = 2048, 256 * 2**20
"""Tokens of one device in a chunk, enough for products at full speed; and the bytes that their words may take."""

_PARTS = ("activation_batch", "activation_length")


def chunk_for(rows: int, tokens: int, words: int, wanted: int | None = None) -> int:
    """Return how many tokens of each row make a chunk; 0 for all of them at once.

    Args:
        rows: B of the array (B, T, V) that shall not exist.
        tokens: its T.
        words: its V.
        wanted: tokens of one device in a chunk; 0 for all at once, None: `CHUNK_TOKENS`, or as many as fit into
            CHUNK, where the whole is LARGE.
    """
    if wanted == 0:
        return 0
    here = rows // num_parts("activation_batch", rows)
    length = tokens // num_parts("activation_length", tokens)
    token = 4 * (words // num_parts("activation_vocab", words))
    if wanted is None and here * length * token <= LARGE:
        return 0
    chunk = max(1, (wanted or min(CHUNK_TOKENS, CHUNK // token)) // here)
    return chunk if chunk < length else 0


def in_chunks(
    look: Callable[..., Any], arrays: Sequence[jax.Array], weights: Mapping[str, tuple[jax.Array, Axes]], chunk: int
) -> Any:
    """Return `look(weights, *arrays)`, worked out for `chunk` tokens of each row at a time.

    Args:
        look: from weights by name, and rows of tokens (B / G, C, ...), to arrays of the same two dimensions.
        arrays: each (B, T, ...).
        weights: as they are stored, with the axes of their dimensions.
        chunk: tokens of each row.
    """
    rows, tokens = arrays[0].shape[:2]
    parts = (num_parts("activation_batch", rows), num_parts("activation_length", tokens))
    copies = {name: _on_all_parts(weight, axes, parts) for name, (weight, axes) in weights.items()}

    def step(_: None, taken: tuple[jax.Array, ...]) -> tuple[None, Any]:
        return None, jax.vmap(jax.vmap(look))(copies, *taken)

    cut = tuple(_cut(array, parts, chunk) for array in arrays)
    _, found = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), None, cut)
    return jax.tree.map(lambda array: _joined(array, (rows, tokens), parts), found)


def _on_all_parts(weight: jax.Array, axes: Axes, parts: tuple[int, int]) -> jax.Array:
    """Return a weight to each part of the tokens: (G, L, ...), one copy on a device."""
    return constrain(jnp.broadcast_to(weight, (*parts, *weight.shape)), (*_PARTS, *axes))


def _cut(x: jax.Array, parts: tuple[int, int], chunk: int) -> jax.Array:
    """Cut (B, T, ...) into chunks (number, G, L, B / G, C, ...), the last ones filled up with zeros."""
    rows, tokens, *rest = x.shape
    groups, lengths = parts
    each = tokens // lengths
    count = -(-each // chunk)
    x = x.reshape(groups, rows // groups, lengths, each, *rest)
    x = jnp.pad(x, [(0, 0)] * 3 + [(0, count * chunk - each)] + [(0, 0)] * len(rest))
    x = x.reshape(groups, rows // groups, lengths, count, chunk, *rest)
    return constrain(jnp.moveaxis(x, (3, 0, 2), (0, 1, 2)), (None, *_PARTS))


def _joined(x: jax.Array, shape: tuple[int, int], parts: tuple[int, int]) -> jax.Array:
    """Join chunks (number, G, L, B / G, C, ...) into (B, T, ...)."""
    (rows, tokens), (groups, lengths), rest = shape, parts, x.shape[5:]
    x = jnp.moveaxis(x, (1, 3, 2, 0, 4), (0, 1, 2, 3, 4)).reshape(groups, rows // groups, lengths, -1, *rest)
    return constrain(x[:, :, :, : tokens // lengths].reshape(*shape, *rest), _PARTS)
