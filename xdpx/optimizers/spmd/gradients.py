"""Norms of gradients, and clipping by the norm over all weights or per weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

Gradients = Mapping[str, jax.Array]
"""Gradients by name of the weight."""


class Clipped(NamedTuple):
    """Clipped gradients, the common factor (1 if clipped per weight), and whether anything was clipped."""

    gradients: dict[str, jax.Array]
    scale: jax.Array
    cut: jax.Array


def norm_of(gradients: Gradients) -> jax.Array:
    """Return the L2 norm over all gradients, float32."""
    squares = [jnp.sum(jnp.square(gradient.astype(jnp.float32))) for gradient in gradients.values()]
    return jnp.sqrt(sum(squares, jnp.zeros((), jnp.float32)))


def clip_together(gradients: Gradients, longest: float, norm: jax.Array) -> Clipped:
    """Scale all gradients by the same factor, so that their norm over all weights is at most `longest`.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks, section 3.2.
    """
    scale = jnp.where(norm > longest, longest / norm, 1.0)
    return Clipped({name: _scaled(gradient, scale) for name, gradient in gradients.items()}, scale, norm > longest)


def clip_each(gradients: Gradients, longest: float, depths: Mapping[str, int]) -> Clipped:
    """Scale each gradient to a norm of at most `longest`; stacked weights, with `depths` leading axes, per slice."""
    one = jnp.ones((), jnp.float32)
    cut, clipped = jnp.zeros((), bool), {}
    for name, gradient in gradients.items():
        axes = tuple(range(depths.get(name, 0), gradient.ndim))
        norm = jnp.sqrt(jnp.sum(jnp.square(gradient.astype(jnp.float32)), axis=axes, keepdims=True))
        clipped[name] = _scaled(gradient, jnp.where(norm > longest, longest / norm, 1.0))
        cut |= jnp.any(norm > longest)
    return Clipped(clipped, one, cut)


def not_clipped(gradients: Gradients) -> Clipped:
    """Return the gradients unchanged."""
    return Clipped(dict(gradients), jnp.ones((), jnp.float32), jnp.zeros((), bool))


def _scaled(gradient: jax.Array, scale: jax.Array) -> jax.Array:
    return gradient * scale.astype(gradient.dtype)
