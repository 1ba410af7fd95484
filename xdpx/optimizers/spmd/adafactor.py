"""Adafactor with second moments factored over the last two axes, and a quantised first moment.

Source: Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, algorithms 2 to 4. The first
moment is of steps: updates are multiplied by the learning rate before they are averaged.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.optimizers.spmd.base_optimizer import BaseOptimizer
from xdpx.optimizers.spmd.transforms import Transformation, root_mean_square
from xdpx.optimizers.spmd.trees import Tree

LEVELS = 127
"""Number of positive levels of a first moment in 8 bits."""


class FactoredState(NamedTuple):
    """State of Adafactor; each pytree has the structure of the weights, with a scalar if a weight does not need it."""

    num_updates: jax.Array
    row: Tree  # running mean of squares over the last axis
    column: Tree  # running mean of squares over the last but one
    full: Tree  # running mean of squares, of weights that are not factored
    moment: Tree  # running mean of steps
    moment_scale: Tree  # value of one level of an 8-bit `moment`, in its shape without the first axis


class ShardedAdafactor(BaseOptimizer):
    """Adafactor with a state sharded like the weights."""

    class HParams(BaseOptimizer.HParams):
        """Fields of Adafactor.

        Attributes:
            decay_method: `adam`: bias-corrected `decay_adam`; `pow`: 1 - step ** -`decay_pow`.
            decay_adam: decay of second moments for `adam`.
            decay_pow: exponent for `pow`.
            beta1: decay of the first moment; 0: no first moment.
            quantized_dtype: of the first moment.
            clipping_threshold: maximum root mean square of a weight's update; None: no clipping.
            factored: store row and column means of the squared gradients instead of all of them.
            min_dim_size_to_factor: minimum size of both last axes of a factored weight.
            epsilon1_grad_sq_reg: added to squared gradients.
            multiply_by_parameter_scale: multiply steps by the root mean square of the weight.
            epsilon2_param_scale_reg: lower bound of that root mean square.
        """

        decay_method: Literal["adam", "pow"] = "adam"
        decay_adam: float = 0.99
        decay_pow: float = 0.8
        beta1: float = 0.0
        quantized_dtype: Literal["int8", "bfloat16", "float32"] = "int8"
        clipping_threshold: float | None = 1.0
        factored: bool = True
        min_dim_size_to_factor: int = 2
        epsilon1_grad_sq_reg: float = 1e-30
        multiply_by_parameter_scale: bool = False
        epsilon2_param_scale_reg: float = 1e-3

    def core(self) -> Transformation:
        """Return the transformation, which applies the learning rate too."""
        return Transformation(self._init, self._update)

    def _init(self, params: Tree) -> FactoredState:
        def empty(weight: jax.Array) -> jax.Array:
            return jnp.zeros((), jnp.float32)

        def over(axis: int, weight: jax.Array) -> jax.Array:
            return jnp.zeros(_without(weight.shape, axis), jnp.float32) if self._is_factored(weight) else empty(weight)

        kept, scales = jax.tree.map(empty, params), jax.tree.map(empty, params)
        if self.hparams.beta1:
            kept, scales = _unzip(jax.tree.map(lambda weight: self._to_bits(_zeros(weight)), params), params)
        return FactoredState(
            jnp.zeros((), jnp.int32),
            jax.tree.map(lambda weight: over(-1, weight), params),
            jax.tree.map(lambda weight: over(-2, weight), params),
            jax.tree.map(lambda weight: empty(weight) if self._is_factored(weight) else _zeros(weight), params),
            kept,
            scales,
        )

    def _is_factored(self, weight: jax.Array) -> bool:
        least = self.hparams.min_dim_size_to_factor
        return self.hparams.factored and weight.ndim >= 2 and min(weight.shape[-2:]) >= least

    def _update(
        self, updates: Tree, state: FactoredState, params: Tree = None, *, learning_rate: Any = 1.0, **_: object
    ) -> tuple[Tree, FactoredState]:
        decay = self._decay(state.num_updates)

        def one(gradient: Any, weight: Any, row: Any, column: Any, full: Any, *moment: Any) -> tuple[Any, ...]:
            return self._one(gradient, weight, (row, column, full, *moment), decay, learning_rate)

        kept = (state.row, state.column, state.full, state.moment, state.moment_scale)
        parts = jax.tree.map(one, updates, params, *kept)
        steps, row, column, full, moment, scale = _unzip(parts, updates)
        return steps, FactoredState(state.num_updates + 1, row, column, full, moment, scale)

    def _one(self, gradient: Any, weight: Any, kept: tuple[Any, ...], decay: Any, rate: Any) -> tuple[Any, ...]:
        """Return (step, new state) of one weight."""
        wanted = self.hparams
        row, column, full, moment, scale = kept
        gradient = gradient.astype(jnp.float32)
        squares = jnp.square(gradient) + wanted.epsilon1_grad_sq_reg
        if self._is_factored(weight):
            row = decay * row + (1 - decay) * jnp.mean(squares, -1)
            column = decay * column + (1 - decay) * jnp.mean(squares, -2)
            share = jax.lax.rsqrt(row / jnp.mean(row, -1, keepdims=True))
            update = gradient * share[..., None] * jax.lax.rsqrt(column)[..., None, :]
        else:
            full = decay * full + (1 - decay) * squares
            update = gradient * jax.lax.rsqrt(full)
        if wanted.clipping_threshold is not None:
            update = update / jnp.maximum(1.0, root_mean_square(update) / wanted.clipping_threshold)
        if wanted.multiply_by_parameter_scale:
            rate = rate * jnp.maximum(root_mean_square(weight), wanted.epsilon2_param_scale_reg)
        step = rate * update
        if wanted.beta1:
            step = wanted.beta1 * self._from_bits(moment, scale) + (1 - wanted.beta1) * step
            moment, scale = self._to_bits(step)
        return -step, row, column, full, moment, scale

    def _decay(self, count: jax.Array) -> jax.Array:
        wanted, step = self.hparams, count.astype(jnp.float32)
        if wanted.decay_method == "pow":
            return jnp.asarray(1.0 - (step + 1.0) ** -wanted.decay_pow)
        decay = jnp.float32(wanted.decay_adam)
        return jnp.asarray(decay * (1 - decay**step) / (1 - decay ** (step + 1)))

    def _to_bits(self, moment: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a moment in its dtype, and the value of one level; 1 if it is not quantised."""
        if self.hparams.quantized_dtype != "int8" or moment.ndim == 0:
            dtype = jnp.float32 if self.hparams.quantized_dtype == "int8" else jnp.dtype(self.hparams.quantized_dtype)
            return moment.astype(dtype), jnp.ones((), jnp.float32)
        unit = jnp.max(jnp.abs(moment), axis=0) / LEVELS
        return jnp.round(moment / jnp.where(unit > 0, unit, 1.0)).astype(jnp.int8), unit

    def _from_bits(self, moment: jax.Array, unit: jax.Array) -> jax.Array:
        return moment.astype(jnp.float32) * unit


def _zeros(weight: jax.Array) -> jax.Array:
    return jnp.zeros(weight.shape, jnp.float32)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    kept = list(shape)
    del kept[axis]
    return tuple(kept)


def _unzip(parts: Tree, like: Tree) -> tuple[Tree, ...]:
    """Return a tuple of pytrees from a pytree of tuples."""
    outer: Any = jax.tree.structure(like)
    columns = zip(*outer.flatten_up_to(parts), strict=True)
    return tuple(jax.tree.unflatten(outer, list(column)) for column in columns)
