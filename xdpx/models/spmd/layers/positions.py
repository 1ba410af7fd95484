"""Positional encodings: sinusoids, trained vectors, rotary embeddings, relative biases."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.embeddings import Embedding


def default_positions(rows: int, length: int) -> jax.Array:
    """Return 0, 1, 2, ... for every row, int32 (rows, length)."""
    return jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (rows, length))


class PositionalEmbedding(BaseLayer):
    """Sines, then cosines, of the position with wave lengths from 2 pi min to 2 pi max, in geometric progression.

    Attributes:
        embedding_dims: width; an odd width ends with a zero.
        min_timescale, max_timescale: of the waves.

    Source: Vaswani et al., 2017, section 3.5, with sines and cosines in halves.
    """

    embedding_dims: int = 0
    min_timescale: float = 1.0
    max_timescale: float = 10_000.0

    def __call__(self, positions: jax.Array) -> jax.Array:
        """Map int positions (B, T) to vectors (B, T, embedding_dims)."""
        waves = self.embedding_dims // 2
        step = math.log(self.max_timescale / self.min_timescale) / max(waves - 1, 1)
        inverse = self.min_timescale * jnp.exp(jnp.arange(waves, dtype=jnp.float32) * -step)
        angles = positions.astype(jnp.float32)[..., None] * inverse
        signal = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        odd = [(0, 0)] * (signal.ndim - 1) + [(0, self.embedding_dims % 2)]
        return jnp.pad(signal, odd).astype(self.compute_dtype)


class TrainablePositionalEmbedding(BaseLayer):
    """A trained vector for each position.

    Attributes:
        max_seq_length: number of positions; later ones get the last vector.
        embedding_dims: width.
        lookup_style: as in Embedding.
    """

    max_seq_length: int = 10_240
    embedding_dims: int = 0
    lookup_style: Literal["index", "matmul"] = "index"

    def setup(self) -> None:
        """Build the table."""
        self.create_child(
            "table",
            Embedding.HParams(),
            num_classes=self.max_seq_length,
            input_dims=self.embedding_dims,
            lookup_style=self.lookup_style,
            axes=(None, "embed"),
        )

    def __call__(self, positions: jax.Array) -> jax.Array:
        """Map int positions (B, T) to vectors (B, T, embedding_dims)."""
        vectors: jax.Array = self.table.emb_lookup(jnp.minimum(positions, self.max_seq_length - 1))
        return vectors


class RotaryPositionalEmbedding(BaseLayer):
    """Rotates pairs of features (i, i + width / 2) of queries and keys by an angle proportional to the position.

    Attributes:
        embedding_dims: width of one head, even.
        min_timescale, max_timescale: of the waves; `max_timescale` is also known as the base, or theta.

    Source: Su et al., RoFormer, 2021, section 3.2; features are paired as in GPT-NeoX and Llama.
    """

    embedding_dims: int = 0
    min_timescale: float = 1.0
    max_timescale: float = 10_000.0

    def setup(self) -> None:
        """Check the width."""
        if self.embedding_dims % 2:
            problem = f"is {self.embedding_dims}."
            raise refusal("RotaryPositionalEmbedding.embedding_dims", problem, "Use an even number.")

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Rotate (B, T, N, H) by positions (B, T)."""
        half = self.embedding_dims // 2
        fraction = jnp.arange(half, dtype=jnp.float32) / half
        timescale = self.min_timescale * (self.max_timescale / self.min_timescale) ** fraction
        angles = (positions.astype(jnp.float32)[..., None] / timescale)[:, :, None, :]
        sine, cosine = jnp.sin(angles), jnp.cos(angles)
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        rotated = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        return rotated.astype(x.dtype)


class RelativeBias(BaseLayer):
    """A trained bias per head for each bucket of distances, added to the attention logits.

    Attributes:
        num_heads: N.
        num_buckets: half of them for single small distances, the others for ranges of growing width.
        max_distance: distances from here on are in the last bucket.
        bidirectional: whether keys after the query have separate buckets; False: they are in that of distance 0.

    Source: Raffel et al., T5, 2020, section 2.1.
    """

    num_heads: int = 1
    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    def setup(self) -> None:
        """Declare the table (num_buckets, num_heads), Gaussian unless `params_init` is set."""
        init = self.params_init or WeightInit.Gaussian(1.0 / math.sqrt(self.num_buckets))
        self.create_variable("wrb", Weight((self.num_buckets, self.num_heads), init, axes=(None, "heads")))

    def __call__(self, query_positions: jax.Array, key_positions: jax.Array) -> jax.Array:
        """Return the bias (B, N, T, S) for positions (B, T) and (B, S)."""
        relative = key_positions[:, None, :] - query_positions[:, :, None]
        buckets = relative_buckets(
            relative, self.num_buckets, max_distance=self.max_distance, bidirectional=self.bidirectional
        )
        return jnp.transpose(jnp.take(self.theta.wrb, buckets, axis=0), (0, 3, 1, 2))


def relative_buckets(relative: jax.Array, num_buckets: int, *, max_distance: int, bidirectional: bool) -> jax.Array:
    """Return the bucket, in [0, num_buckets), of each distance `key position - query position`.

    Source: Raffel et al., T5, 2020, section 2.1.
    """
    first = jnp.zeros_like(relative)
    if bidirectional:
        num_buckets //= 2
        first = jnp.where(relative > 0, num_buckets, 0)
        distance = jnp.abs(relative)
    else:
        distance = jnp.maximum(-relative, 0)
    exact = num_buckets // 2
    growth = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    wide = jnp.minimum(exact + growth.astype(jnp.int32), num_buckets - 1)
    return first + jnp.where(distance < exact, distance, wide)
