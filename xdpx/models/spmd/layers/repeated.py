"""Equal blocks as one scan: the program contains one block, and weights have a leading axis "layers"."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
from flax import linen as nn

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import AUX_LOSS, NON_TRAINABLE, PARAMS, RANDOM, SUMMARIES, BaseLayer
from xdpx.models.spmd.decoding import cache
from xdpx.models.spmd.layers.transformer import Transformer, recomputed

_STACKED = (PARAMS, NON_TRAINABLE, SUMMARIES, AUX_LOSS, cache.COLLECTION)


class StackedTransformerRepeated(BaseLayer):
    """One block applied `x_times` times with different weights, by `lax.scan`.

    Compiles in the time of one block. All weights of the block have a leading axis "layers" of size `x_times`.

    Attributes:
        body: of the repeated block, or a stack of a few.
        x_times: number of repetitions.
        checkpoint_policy: which activations an iteration stores for the backward pass (layers/remat.py).
        unroll: number of iterations per step of the loop.
    """

    body: BaseHParams = sub_config_field(Transformer.HParams)
    x_times: int = 1
    checkpoint_policy: str = "nothing"
    unroll: int = 1

    _repeats_children: ClassVar[bool] = True

    def setup(self) -> None:
        """Build the block."""
        self.create_child("sub", self.body)

    def __call__(self, x: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
        """Map (B, T, D) to (B, T, D); the other arguments are those of Transformer, the same for every iteration."""

        def step(block: BaseLayer, carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return recomputed(block, self.checkpoint_policy, scanned=True)(carry, *args, **kwargs), None

        scanned: Any = nn.scan(
            step,
            variable_axes=dict.fromkeys(_STACKED, 0),
            split_rngs={PARAMS: True, RANDOM: True},
            length=self.x_times,
            unroll=self.unroll,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        out: jax.Array = scanned(self.sub, x, None)[0]
        return out
