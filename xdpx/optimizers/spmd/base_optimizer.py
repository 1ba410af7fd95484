"""Base class of optimizers on JAX: learning rate, regularisation, clipping limits, averaging of weights."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.config.hparams import BaseHParams, Configurable, build, sub_config_field
from xdpx.optimizers.spmd.schedules import BaseSchedule, Constant
from xdpx.optimizers.spmd.transforms import Transformation, chain, decay_weights, penalise
from xdpx.optimizers.spmd.trees import Tree

ZERO_OR_MORE = (
    "learning_rate", "weight_decay", "l1_regularizer_weight", "l2_regularizer_weight", "clip_gradient_norm_to_value",
    "clip_gradient_single_norm_to_value",
)  # fmt: skip
"""Fields that would turn a step around if they were negative."""

SHARES = ("ema_decay", "beta", "beta1", "beta2", "momentum")
"""Fields of averages: what stays of the average in a step, in [0, 1)."""


class CountedState(NamedTuple):
    """State of a transformation that computes its learning rate from its own count of updates."""

    num_updates: jax.Array
    inner: Any


class BaseOptimizer(Configurable):
    """An optimizer. It gets the learning rate from the learner; `transformation` is for use without a learner.

    Attributes:
        inner: the wrapped optimizer, if this one only decides when it takes a step.
        moves_by_rate: whether the learning rate multiplies its steps; not if it has one of its own.
    """

    inner: BaseOptimizer | None = None
    moves_by_rate: ClassVar[bool] = True

    class HParams(BaseHParams):
        """Fields of all optimizers.

        Attributes:
            learning_rate: base learning rate.
            lr_schedule: schedule of its factor.
            weight_decay: decoupled: weights shrink by learning rate * this per step.
            l1_regularizer_weight: adds this * sum |w| to the loss, through the gradient.
            l2_regularizer_weight: adds this / 2 * sum w^2 to the loss, through the gradient.
            weight_decay_exclusion: regular expressions for names of weights exempt from these three.
            skip_lp_1d_vectors: exempt weights with at most one axis too (biases, scales of norms).
            clip_gradient_norm_to_value: maximum norm of the gradient over all weights; 0: no clipping.
            clip_gradient_single_norm_to_value: maximum norm of the gradient of each weight; 0: no clipping.
            ema_decay: decay of the average of the weights; 0: no average.
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
        _refuse_ranges(self)
        _refuse_several(self, ("weight_decay", "l1_regularizer_weight", "l2_regularizer_weight"))
        _refuse_several(self, ("clip_gradient_norm_to_value", "clip_gradient_single_norm_to_value"))
        self.schedule: BaseSchedule = build(hparams.lr_schedule)
        if not callable(self.schedule) or isinstance(self.schedule, type):
            remedy = "Give the template of a schedule, e.g. schedules.Constant.HParams(), or a function of the step."
            raise refusal(f"{type(self).__name__}.lr_schedule", f"is {self.schedule!r:.60}.", remedy)

    def get_learning_rate(self, step: jax.Array | int) -> jax.Array:
        """Return the learning rate of the update after `step` updates."""
        return jnp.asarray(self.hparams.learning_rate * self.schedule(step))

    def joins_weights(self) -> bool:
        """Return whether the step of a weight depends on the gradients of other weights."""
        return False

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps; it takes `learning_rate` as an extra argument."""
        raise NotImplementedError

    def decayed(self) -> list[Any]:
        """Return the transformations of the optimizer and its weight decay, in the order of application."""
        wanted = self.hparams
        decay = [decay_weights(wanted.weight_decay, self.is_regularised)] if wanted.weight_decay else []
        return [self.core(), *decay]

    def rule(self) -> Transformation:
        """Return the transformation with weight decay, and with penalties, which are added to the gradient first."""
        wanted = self.hparams
        l1, l2 = wanted.l1_regularizer_weight or 0.0, wanted.l2_regularizer_weight or 0.0
        penalties = [penalise(self.is_regularised, l1=l1, l2=l2)] if l1 or l2 else []
        return chain(*penalties, *self.decayed())

    def transformation(self) -> Transformation:
        """Return a transformation for any optax training loop, which counts updates to get the learning rate."""
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
        """Return whether weight decay and penalties apply to a weight."""
        if self.hparams.skip_lp_1d_vectors and weight.ndim <= 1:
            return False
        return not any(re.search(pattern, name) for pattern in self.hparams.weight_decay_exclusion)


def _refuse_ranges(optimizer: BaseOptimizer) -> None:
    faults = []
    for name, value in optimizer.hparams.fields_and_values():
        allowed = "0 or more" if name in ZERO_OR_MORE else "0 or more, and less than 1" if name in SHARES else ""
        fits = value is None or (0 <= value < (1 if name in SHARES else math.inf)) if allowed else True
        if not fits:
            faults.append(Fault(f"{type(optimizer).__name__}.{name}", f"is {value}.", f"Use {allowed}."))
    if faults:
        raise ConfigError(THIS_RUN, faults)


def _refuse_several(optimizer: BaseOptimizer, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(optimizer.hparams, name)]
    if len(given) > 1:
        where = type(optimizer).__name__
        raise refusal(where, f"{' and '.join(given)} are set, which exclude each other.", "Keep one of them.")
