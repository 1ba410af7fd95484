"""The running average of the weights, which often scores better than the weights themselves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xdpx.optimizers.spmd.trees import Tree


def start_average(params: Tree) -> dict[str, Any]:
    """Return the average before the first update: the weights as they are, in a place of their own."""
    return {"count": jnp.zeros((), jnp.int32), "average": jax.tree.map(lambda weight: jnp.array(weight), params)}


def advance_average(kept: dict[str, Any], params: Tree, decay: float) -> dict[str, Any]:
    """Move the average towards the weights as they are before an update.

    The decay is min(decay, (1 + n) / (10 + n)) after n updates, so that the first weights are soon forgotten.

    Source: TensorFlow, `ExponentialMovingAverage(num_updates=n)`.
    """
    count = kept["count"].astype(jnp.float32)
    now = jnp.minimum(decay, (1.0 + count) / (10.0 + count))

    def towards(average: jax.Array, weight: jax.Array) -> jax.Array:
        return (now * average + (1.0 - now) * weight).astype(average.dtype)

    return {"count": kept["count"] + 1, "average": jax.tree.map(towards, kept["average"], params)}
