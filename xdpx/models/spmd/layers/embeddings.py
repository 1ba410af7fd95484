"""Embedding tables of tokens, and softmax layers, which may share the table."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.token_chunks import chunk_for, in_chunks
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain

Weights = Any
"""Arrays by name: a mapping, or `theta`."""

_LOGITS = ("activation_batch", "activation_length", "activation_vocab")


class Embedding(BaseLayer):
    """A table of `num_classes` vectors of width `input_dims`.

    Attributes:
        num_classes: number of rows.
        input_dims: width of a vector.
        lookup_style: `index` gathers rows; `matmul` multiplies by one-hot vectors, which is better for a sharded table;
            in chunks of tokens if the one-hot vectors of all are large (layers/token_chunks.py).
        scale_sqrt_depth: whether vectors are multiplied by sqrt(input_dims).
        axes: logical axes of the table.
    """

    num_classes: int = 0
    input_dims: int = 0
    lookup_style: Literal["index", "matmul"] = "index"
    scale_sqrt_depth: bool = False
    axes: tuple[Any, ...] = ("vocab", "embed")

    def setup(self) -> None:
        """Declare the table: Gaussian with deviation 1/sqrt(width), unless `params_init` is set."""
        init = self.params_init or WeightInit.Gaussian(1.0 / math.sqrt(self.input_dims))
        self.create_variable("emb_var", Weight((self.num_classes, self.input_dims), init, axes=tuple(self.axes)))

    def emb_lookup(self, ids: jax.Array) -> jax.Array:
        """Map int ids (...) to vectors (..., input_dims)."""
        table = self.theta.emb_var
        by_product = self.lookup_style == "matmul"
        chunk = chunk_for(ids.shape[0], ids.shape[1], self.num_classes) if by_product and ids.ndim == 2 else 0
        if chunk:
            stored = {"emb_var": self.stored_weights()["emb_var"]}
            vectors = in_chunks(self._product, (ids,), stored, chunk)
        elif not by_product:
            # Gather the whole width on every device: otherwise each device would look up a part for all tokens.
            vectors = jnp.take(constrain(table, (self.axes[0], None)), ids, axis=0, mode="clip")
        else:
            vectors = self._product({"emb_var": table}, ids, _LOGITS)
        scale = math.sqrt(self.input_dims) if self.scale_sqrt_depth else 1.0
        return _split(vectors * jnp.asarray(scale, vectors.dtype), ACTIVATION_AXES)

    def _product(
        self, weights: Weights, ids: jax.Array, axes: tuple[str | None, ...] = (None, None, "activation_vocab")
    ) -> jax.Array:
        one_hot = _split(jax.nn.one_hot(ids, self.num_classes, dtype=self.compute_dtype), axes)
        return jnp.einsum("...v,vd->...d", one_hot, weights["emb_var"].astype(self.compute_dtype))

    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return `emb_lookup` of the ids."""
        return self.emb_lookup(ids)


class BaseSoftmax(BaseLayer):
    """Logits over `num_classes` classes.

    Attributes:
        num_classes: V.
        input_dims: D.
        soft_cap_logits: c: logits become c tanh(logits / c); 0 or None: unchanged.
        has_bias: whether each class has a bias.
    """

    num_classes: int = 0
    input_dims: int = 0
    soft_cap_logits: float | None = None
    has_bias: bool = False

    def _declare_bias(self) -> None:
        if self.has_bias:
            self.create_variable("b", Weight((self.num_classes,), WeightInit.Constant(0.0), axes=("vocab",)))

    def product(self, x: jax.Array, weights: Weights) -> jax.Array:
        """Map (..., D) to float32 (..., V), without bias and cap."""
        raise NotImplementedError(f"{type(self).__name__} is abstract: use FullSoftmax or SharedEmbeddingSoftmax.")

    def logits_from(self, x: jax.Array, weights: Weights) -> jax.Array:
        """Map (..., D) to float32 logits (..., V) with given weights: from `stored_weights`, or `theta`."""
        wide = self.product(x, weights)
        wide = wide + weights["b"].astype(self.compute_dtype).astype(jnp.float32) if self.has_bias else wide
        return capped(wide, self.soft_cap_logits)

    def get_logits(self, x: jax.Array) -> jax.Array:
        """Map (..., D) to float32 logits (..., V)."""
        return _split(self.logits_from(x, self.theta), _LOGITS)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `get_logits`."""
        return self.get_logits(x)


class FullSoftmax(BaseSoftmax):
    """A softmax with a separate weight, shape (D, V)."""

    def setup(self) -> None:
        """Declare the weight, Gaussian with deviation 1/sqrt(D), unless `params_init` is set."""
        init = self.params_init or WeightInit.Gaussian(1.0 / math.sqrt(self.input_dims))
        self.create_variable("w", Weight((self.input_dims, self.num_classes), init, axes=("embed", "vocab")))
        self._declare_bias()

    def product(self, x: jax.Array, weights: Weights) -> jax.Array:
        """Map (..., D) to float32 (..., V), without bias and cap."""
        kind = self.compute_dtype
        return jnp.einsum(
            "...d,dv->...v", x.astype(kind), weights["w"].astype(kind), preferred_element_type=jnp.float32
        )


class SharedEmbeddingSoftmax(Embedding, BaseSoftmax):
    """One table, stored once as `emb_var` (V, D), for both the embedding of tokens and their logits."""

    scale_sqrt_depth: bool = True

    def setup(self) -> None:
        """Declare the table and the bias."""
        super().setup()
        self._declare_bias()

    def product(self, x: jax.Array, weights: Weights) -> jax.Array:
        """Map (..., D) to float32 (..., V), without bias and cap."""
        kind = self.compute_dtype
        return jnp.einsum(
            "...d,vd->...v", x.astype(kind), weights["emb_var"].astype(kind), preferred_element_type=jnp.float32
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (..., D) to float32 logits (..., V)."""
        return self.get_logits(x)


def capped(x: jax.Array, cap: float | None) -> jax.Array:
    """Return cap * tanh(x / cap), or `x` without a cap."""
    return cap * jnp.tanh(x / cap) if cap else x


def _split(x: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
    return constrain(x, axes) if x.ndim == len(axes) else x
