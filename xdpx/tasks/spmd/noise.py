"""Variational noise: add noise to the weights during training, which favours flat minima.

Source: Graves, Practical variational inference for neural networks; fixed scale, as in Graves, Sequence transduction
with recurrent neural networks, section 3.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.hparams import BaseHParams
from xdpx.engines.spmd.steps import step_being_traced
from xdpx.optimizers.spmd.trees import Tree, matching, name_of, named


class VariationalNoise(BaseHParams):
    """Fields of the noise.

    Attributes:
        vn_scale: standard deviation of the normal noise that is added; 0 for none.
        vn_regex: a regular expression; the weights in whose name, `params/<path>`, it is found get noise.
        vn_start_step: updates before the noise begins.
    """

    vn_scale: float = 0.0
    vn_regex: str = ""
    vn_start_step: int = 0


def with_noise(params: Tree, wanted: Any, key: jax.Array) -> Tree:
    """Return the weights with noise added, for one training step.

    Args:
        params: the weights.
        wanted: a `VariationalNoise`.
        key: decides the noise.

    Raises:
        ConfigError: the expression is found in no name: there would be no noise at all.
    """
    if not wanted.vn_scale:
        return params
    chosen = matching([wanted.vn_regex], named(params), where="vn.vn_regex")
    scale = jnp.where(step_being_traced() >= wanted.vn_start_step, wanted.vn_scale, 0.0)

    def tremble(path: Any, weight: jax.Array) -> jax.Array:
        name = name_of(path)
        if name not in chosen:
            return weight
        # A weight's noise depends on its name alone, so other weights may come and go.
        own = jax.random.fold_in(key, zlib.crc32(name.encode()))
        return weight + (scale * jax.random.normal(own, weight.shape)).astype(weight.dtype)

    return jax.tree_util.tree_map_with_path(tremble, params)
