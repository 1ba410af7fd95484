"""Dropout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.models.spmd.base_layer import BaseLayer


class Dropout(BaseLayer):
    """Sets elements to zero at random in training, and scales the rest to keep the mean.

    Attributes:
        dropout_prob: share of zeros, in [0, 1).
        broadcast_dims: dimensions that share one draw, e.g. (1,) to drop a feature at all positions; negative ones
            count from the end.
    """

    dropout_prob: float = 0.0
    broadcast_dims: tuple[int, ...] = ()

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the same shape; in evaluation, and with probability 0, `x` itself.

        Raises:
            ConfigError: the probability is not in [0, 1), or `x` lacks one of `broadcast_dims`.
        """
        if not 0.0 <= self.dropout_prob < 1.0:
            raise refusal("dropout_prob", f"is {self.dropout_prob}.", "Give a share from 0 to less than 1, e.g. 0.1.")
        if self.do_eval or self.dropout_prob == 0.0:
            return x
        unknown = [dim for dim in self.broadcast_dims if not -x.ndim <= dim < x.ndim]
        if unknown:
            problem = f"names dimension {unknown[0]} of an array with {x.ndim}."
            raise refusal("broadcast_dims", problem, f"Use {-x.ndim} to {x.ndim - 1}.")
        shared = {dim % x.ndim for dim in self.broadcast_dims}
        shape = tuple(1 if dim in shared else size for dim, size in enumerate(x.shape))
        kept = jax.random.bernoulli(self.next_prng_key(), 1.0 - self.dropout_prob, shape)
        return jnp.where(kept, x / (1.0 - self.dropout_prob), jnp.zeros((), x.dtype)).astype(x.dtype)
