"""Activation functions as layers, so that a template can name one."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from xdpx.models.spmd.base_layer import BaseLayer


class BaseActivation(BaseLayer):
    """An elementwise function."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the same shape."""
        raise NotImplementedError(f"{type(self).__name__} is abstract: use one of {', '.join(ACTIVATIONS)}.")


class Identity(BaseActivation):
    """The identity."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `x`."""
        return x


class ReLU(BaseActivation):
    """max(x, 0)."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return max(x, 0)."""
        return jax.nn.relu(x)


class ReLU6(BaseActivation):
    """min(max(x, 0), 6)."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return min(max(x, 0), 6)."""
        return jax.nn.relu6(x)


class LeakyReLU(BaseActivation):
    """x, or `negative_slope` times x below 0."""

    negative_slope: float = 0.01

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x where positive, else a small multiple."""
        return jax.nn.leaky_relu(x, self.negative_slope)


class SquaredReLU(BaseActivation):
    """max(x, 0) squared. Source: So et al., Primer, 2021, section 4."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return max(x, 0) squared."""
        return jnp.square(jax.nn.relu(x))


class ELU(BaseActivation):
    """x, or exp(x) - 1 below 0."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x where positive, else exp(x) - 1."""
        return jax.nn.elu(x)


class GELU(BaseActivation):
    """x times the normal distribution function, exact or by tanh. Source: Hendrycks and Gimpel, 2016."""

    approximate: bool = True

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x times P(X < x)."""
        return jax.nn.gelu(x, approximate=self.approximate)


class SiLU(BaseActivation):
    """x times sigmoid(x)."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x times sigmoid(x)."""
        return jax.nn.silu(x)


class Swish(SiLU):
    """SiLU under its other name."""


class Sigmoid(BaseActivation):
    """1 / (1 + exp(-x))."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return 1 / (1 + exp(-x))."""
        return jax.nn.sigmoid(x)


class Tanh(BaseActivation):
    """Hyperbolic tangent."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return tanh(x)."""
        return jnp.tanh(x)


class Softplus(BaseActivation):
    """log(1 + exp(x))."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return log(1 + exp(x))."""
        return jax.nn.softplus(x)


class Exp(BaseActivation):
    """exp(x)."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return exp(x)."""
        return jnp.exp(x)


ACTIVATIONS: Mapping[str, type[BaseActivation]] = {
    cls.__name__.lower(): cls
    for cls in (Identity, ReLU, ReLU6, LeakyReLU, SquaredReLU, ELU, GELU, SiLU, Swish, Sigmoid, Tanh, Softplus, Exp)
}
"""All activations by lower-case name."""
