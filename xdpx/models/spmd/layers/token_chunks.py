"""Apply a function of tokens and weights in chunks of tokens, so that its large intermediate arrays stay small.

Intermediate results of a chunk are discarded, and recomputed in the backward pass. Each device processes its own tokens
with its own copy of the weights; weight gradients are summed in the dtype of the stored weights, and over devices once,
after the last chunk.

B rows, T tokens, C tokens of a row in a chunk; G and L: numbers of parts into which devices split B and T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.models.spmd.sharding import Axes, constrain, num_parts

LARGE = 64 * 2**20
"""Bytes of float32 (B, T, V) on one device above which chunks are used."""

CHUNK_TOKENS, CHUNK = 2048, 256 * 2**20
"""Tokens per device in a chunk, enough for products at full speed; and the limit of bytes of a chunk's (B, C, V)."""

_PARTS = ("activation_batch", "activation_length")


def chunk_for(rows: int, tokens: int, words: int, wanted: int | None = None) -> int:
    """Return the number of tokens of each row in a chunk; 0 for all at once.

    Args:
        rows: B of the array (B, T, V) to avoid.
        tokens: its T.
        words: its V.
        wanted: tokens per device in a chunk; 0 for all at once; None: if the array is larger than LARGE, `CHUNK_TOKENS`
            or as many as fit into CHUNK.
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
    """Return `look(weights, *arrays)`, computed for `chunk` tokens of each row at a time.

    Args:
        look: from weights by name, and rows of tokens (B / G, C, ...), to arrays of the same two dimensions.
        arrays: each (B, T, ...).
        weights: as stored, with the axes of their dimensions.
        chunk: tokens of each row.
    """
    rows, tokens = arrays[0].shape[:2]
    parts = (num_parts("activation_batch", rows), num_parts("activation_length", tokens))
    copies = {  # of each weight one for every part of the tokens, (G, L, ...), so one on every device
        name: constrain(jnp.broadcast_to(weight, (*parts, *weight.shape)), (*_PARTS, *axes))
        for name, (weight, axes) in weights.items()
    }

    def step(_: None, taken: tuple[jax.Array, ...]) -> tuple[None, Any]:
        return None, jax.vmap(jax.vmap(look))(copies, *taken)

    cut = tuple(_cut(array, parts, chunk) for array in arrays)
    _, found = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), None, cut)
    return jax.tree.map(lambda array: _joined(array, (rows, tokens), parts), found)


def _cut(x: jax.Array, parts: tuple[int, int], chunk: int) -> jax.Array:
    """Return (B, T, ...) in chunks (number, G, L, B / G, C, ...), the last ones padded with zeros."""
    rows, tokens, *rest = x.shape
    groups, lengths = parts
    each = tokens // lengths
    count = -(-each // chunk)
    x = x.reshape(groups, rows // groups, lengths, each, *rest)
    x = jnp.pad(x, [(0, 0)] * 3 + [(0, count * chunk - each)] + [(0, 0)] * len(rest))
    x = x.reshape(groups, rows // groups, lengths, count, chunk, *rest)
    return constrain(jnp.moveaxis(x, (3, 0, 2), (0, 1, 2)), (None, *_PARTS))


def _joined(x: jax.Array, shape: tuple[int, int], parts: tuple[int, int]) -> jax.Array:
    """Return (B, T, ...) of chunks (number, G, L, B / G, C, ...)."""
    (rows, tokens), (groups, lengths), rest = shape, parts, x.shape[5:]
    x = jnp.moveaxis(x, (1, 3, 2, 0, 4), (0, 1, 2, 3, 4)).reshape(groups, rows // groups, lengths, -1, *rest)
    return constrain(x[:, :, :, : tokens // lengths].reshape(*shape, *rest), _PARTS)
