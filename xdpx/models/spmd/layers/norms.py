"""Normalisation over the last dimension, computed in float32 for any dtype of the input."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.initialisers import WeightInit


class BaseNorm(BaseLayer):
    """A norm over the last dimension.

    Attributes:
        dim: its width.
        epsilon: added to the variance.
        direct_scale: True multiplies by `scale`, initially 1; False by 1 + `scale`, initially 0, so that weight decay
            pulls towards the plain norm.
    """

    dim: int = 0
    epsilon: float = 1e-6
    direct_scale: bool = True

    def _declare_scale(self) -> None:
        init = WeightInit.Constant(1.0 if self.direct_scale else 0.0)
        self.create_variable("scale", Weight((self.dim,), init, axes=("norm",), keep_dtype=True))

    def _scale(self) -> jax.Array:
        scale = self.theta.scale.astype(jnp.float32)
        return scale if self.direct_scale else 1.0 + scale

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape and dtype of `x`."""
        raise NotImplementedError(f"{type(self).__name__} is abstract: use LayerNorm or RMSNorm.")


class LayerNorm(BaseNorm):
    """(x - mean) / sqrt(variance + epsilon), scaled and shifted. Source: Ba et al., 2016.

    Attributes:
        use_scale, use_bias: whether there are weights for them.
    """

    direct_scale: bool = False
    use_scale: bool = True
    use_bias: bool = True

    def setup(self) -> None:
        """Declare scale and bias."""
        if self.use_scale:
            self._declare_scale()
        if self.use_bias:
            weight = Weight((self.dim,), WeightInit.Constant(0.0), axes=("norm",), keep_dtype=True)
            self.create_variable("bias", weight)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape and dtype of `x`."""
        wide = x.astype(jnp.float32)
        centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + self.epsilon)
        normal = normal * self._scale() if self.use_scale else normal
        normal = normal + self.theta.bias.astype(jnp.float32) if self.use_bias else normal
        return normal.astype(x.dtype)


class RMSNorm(BaseNorm):
    """x / sqrt(mean(x^2) + epsilon), scaled. Source: Zhang and Sennrich, NeurIPS 2019, equation 4."""

    def setup(self) -> None:
        """Declare the scale."""
        self._declare_scale()

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape and dtype of `x`."""
        wide = x.astype(jnp.float32)
        normal = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + self.epsilon)
        return (normal * self._scale()).astype(x.dtype)


class NoNorm(BaseNorm):
    """The identity, for templates that require a norm."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `x`."""
        return x
