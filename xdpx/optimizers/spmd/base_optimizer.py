"""What all update rules share: the learning rate, regularisation, clipping limits, averaging of weights."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.config.hparams import BaseHParams, Configurable, build, sub_config_field
from xdpx.optimizers.spmd.schedules import BaseSchedule, Constant
from xdpx.optimizers.spmd.transforms import Transformation, chain, decay_weights, penalise
from xdpx.optimizers.spmd.trees import Tree


class CountedState(NamedTuple):
    """Of a rule that finds its learning rate by itself."""

    num_updates: jax.Array
    inner: Any


class BaseOptimizer(Configurable):
    """An update rule. The learner gives it the learning rate; `transformation` gives it to whoever has no learner.

    Attributes:
        inner: the rule that this one calls, where it only decides when.
    """

    inner: BaseOptimizer | None = None

    class HParams(BaseHParams):
        """Of all update rules.

        Attributes:
            learning_rate: base rate.
            lr_schedule: its factor over time.
            weight_decay: shrinks weights by learning rate * this, apart from the gradient (decoupled).
            l1_regularizer_weight: adds this * sum |w| to what is minimised, by the gradient.
            l2_regularizer_weight: adds this / 2 * sum w^2.
            weight_decay_exclusion: regular expressions of names of weights that none of the three touches.
            skip_lp_1d_vectors: they leave weights with one axis (biases, scales of norms) alone.
            clip_gradient_norm_to_value: longest gradient over all weights; 0 does not clip.
            clip_gradient_single_norm_to_value: longest gradient of each weight by itself; 0 does not clip.
            ema_decay: of the average of the weights; 0 keeps none.
        """

        learning_rate: float = 0.0
        lr_schedule: Any = sub_config_field(Constant.HParams)
        weight_decay: float = 0.0
        l1_regularizer_weight: float | None = None
        l2_regularizer_weight: float | None = None
        weight_decay_exclusion: list[str] | tuple[str, ...] = ()
        skip_lp_1d_vectors: bool = False
        clip_gradient_norm_to_value: float = 0.0
        clip_gradient_single_norm_to_value: float = 0.0
        ema_decay: float = 0.0

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        _refuse_several(self, ("weight_decay", "l1_regularizer_weight", "l2_regularizer_weight"))
        _refuse_several(self, ("clip_gradient_norm_to_value", "clip_gradient_single_norm_to_value"))
        self.schedule: BaseSchedule = build(hparams.lr_schedule)

    def get_learning_rate(self, step: jax.Array | int) -> jax.Array:
        """Return the learning rate of the update that follows `step` others."""
        return jnp.asarray(self.hparams.learning_rate * self.schedule(step))

    def core(self) -> Transformation:
        """Return the rule itself, from gradients to steps; it takes `learning_rate` as an extra argument."""
        raise NotImplementedError

    def decayed(self) -> list[Any]:
        """Return the rule and its weight decay, to be applied one after another; where decay stands is the rule's."""
        wanted = self.hparams
        decay = [decay_weights(wanted.weight_decay, self.is_regularised)] if wanted.weight_decay else []
        return [self.core(), *decay]

    def rule(self) -> Transformation:
        """Return the rule with its decay, and with penalties before it, which are part of the gradient."""
        wanted = self.hparams
        l1, l2 = wanted.l1_regularizer_weight or 0.0, wanted.l2_regularizer_weight or 0.0
        penalties = [penalise(self.is_regularised, l1=l1, l2=l2)] if l1 or l2 else []
        return chain(*penalties, *self.decayed())

    def transformation(self) -> Transformation:
        """Return the rule as any optax training loop uses it: it counts, and finds the learning rate by itself."""
        rule = self.rule()

        def init(params: Tree) -> CountedState:
            return CountedState(jnp.zeros((), jnp.int32), rule.init(params))

        def update(updates: Tree, state: CountedState, params: Tree = None, **_: object) -> Any:
            rate = self.get_learning_rate(state.num_updates)
            steps, inner = rule.update(updates, state.inner, params, learning_rate=rate)
            return steps, CountedState(state.num_updates + 1, inner)

        return Transformation(init, update)

    get_grad_transformation = transformation

    def is_regularised(self, name: str, weight: jax.Array) -> bool:
        """Return whether decay and penalties touch a weight."""
        if self.hparams.skip_lp_1d_vectors and weight.ndim <= 1:
            return False
        return not any(re.search(pattern, name) for pattern in self.hparams.weight_decay_exclusion)


def _refuse_several(optimizer: BaseOptimizer, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(optimizer.hparams, name)]
    if len(given) > 1:
        where = type(optimizer).__name__
        raise ValueError(f"{where}: {' and '.join(given)} are set, which exclude each other. Keep one of them.")
