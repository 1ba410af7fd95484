"""Learners: apply gradients to the trained weights, with clipping, skipped steps and one or several optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, Configurable, build_a, sub_config_field
from xdpx.logger import log
from xdpx.optimizers.spmd.base_optimizer import BaseOptimizer
from xdpx.optimizers.spmd.gradients import Clipped, clip_each, clip_together, norm_of, not_clipped
from xdpx.optimizers.spmd.optimizers import Adam
from xdpx.optimizers.spmd.partition import Axes, axes_of_state, depth_of, is_axes
from xdpx.optimizers.spmd.transforms import Transformation, chain, over_leading_axes, scale_by_norm, skip_untouched
from xdpx.optimizers.spmd.trees import Tree, matching, named, unnamed

OptState = dict[str, Any]
"""`rules`: state of the optimizer for each group of weights; `ema`: the average of the weights, if there is one."""

Facts = dict[str, jax.Array]
Named = Mapping[str, jax.Array]

LIMITS = ("clip_gradient_norm_to_value", "clip_gradient_single_norm_to_value", "ema_decay")
"""Fields of an optimizer that the learner applies, only those of its main optimizer."""


@dataclass(frozen=True)
class WeightGroup:
    """Weights of one optimizer with the same stacked leading axes, over which it is vectorised."""

    key: str
    optimizer: BaseOptimizer
    rule: Transformation
    names: tuple[str, ...]
    is_stacked: bool


class Learner(Configurable):
    """A learner with one optimizer for all trained weights; a pure function of states."""

    class HParams(BaseHParams):
        """Fields of a learner.

        Attributes:
            name: of the learner.
            loss_name: the metric to minimise; None: decided by the task's aggregator.
            optimizer: the optimizer.
            bprop_variable_exclusion: regular expressions for names of frozen weights.
            bprop_variable_inclusion: regular expressions for names of trained weights; all others are frozen.
            keep_optimizer_state_for_excluded_vars: keep optimizer states of frozen weights too.
            vectorize_on_repeat_prefix: update each layer of a stack like a separate weight.
            check_valid_step: a step with a gradient that is not finite is invalid.
            skip_step_gradient_norm_value: a step with a gradient of a higher norm is invalid; 0: no limit.
            enable_skip_step_on_gradient_anomalies: skip invalid steps: weights and states are unchanged.
            skip_zero_gradients: `weights`: skip weights whose gradient is zero; `global`: skip the step if all are.
            scale_update_by_var_norm: multiply each update by the norm of its weight.
            grad_norm_individual_vars: also return the norm of the gradient of each weight.
        """

        name: str = "learner"
        loss_name: str | None = "total_loss"
        optimizer: Any = sub_config_field(Adam.HParams)
        bprop_variable_exclusion: str | list[str] | tuple[str, ...] = ()
        bprop_variable_inclusion: str | list[str] | tuple[str, ...] = ()
        keep_optimizer_state_for_excluded_vars: bool = False
        vectorize_on_repeat_prefix: bool = True
        check_valid_step: bool = True
        skip_step_gradient_norm_value: float = 0.0
        enable_skip_step_on_gradient_anomalies: bool = True
        skip_zero_gradients: Literal["weights", "global"] | None = None
        scale_update_by_var_norm: bool = False
        grad_norm_individual_vars: bool = False

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.optimizer = _optimizer(hparams.optimizer, f"{hparams.name}.optimizer")
        _refuse_limits_inside(hparams.name, "optimizer", self.optimizer)
        self._depths: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        if hparams.bprop_variable_exclusion and hparams.bprop_variable_inclusion:
            both = "bprop_variable_exclusion and bprop_variable_inclusion"
            raise refusal(hparams.name, f"{both} exclude each other.", "Keep one of them.")
        if hparams.skip_step_gradient_norm_value and not hparams.enable_skip_step_on_gradient_anomalies:
            log.warning(
                f"{hparams.name}.skip_step_gradient_norm_value: is {hparams.skip_step_gradient_norm_value}, but skips "
                "nothing while enable_skip_step_on_gradient_anomalies is False.",
                once=True,
            )

    def prepare(self, params_axes: Tree) -> None:
        """Record which weights are stacks of layers: their leading logical axes are `layers` or `stage`."""
        axes = named(params_axes, is_leaf=is_axes)
        self._depths = {name: depth_of(leaf) for name, leaf in axes.items()}

    def init(self, params: Tree) -> OptState:
        """Return the initial state.

        Raises:
            ConfigError: a configured regular expression matches no name of a weight, or weights are averaged whose type
                loses the small steps of an average.
        """
        weights = named(params)
        for label, optimizer, _ in self.shares(sorted(weights)):
            rule = optimizer.inner or optimizer  # an accumulator has none of its own
            matching(rule.hparams.weight_decay_exclusion, weights, where=f"{label}.weight_decay_exclusion")
        self._shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        groups = self.groups(weights)
        self._warn_of_no_rate(groups)
        for group in groups:
            self._warn_of_layers_alone(group)
        state: OptState = {"rules": {group.key: group.rule.init(_part(weights, group.names)) for group in groups}}
        if self.optimizer.hparams.ema_decay:
            self._refuse_to_average(weights)
            copy = jax.tree.map(lambda weight: jnp.array(weight), params)
            state["ema"] = {"count": jnp.zeros((), jnp.int32), "average": copy}
        return state

    def update(
        self, grads: Tree, opt_state: OptState, params: Tree, *, step: jax.Array | int
    ) -> tuple[Tree, OptState, Facts]:
        """Take one update.

        Args:
            grads: gradients of the loss, in the structure of `params`.
            opt_state: the state, from `init` or the previous update.
            params: the weights.
            step: number of updates before this one.

        Returns:
            (weights, state, facts). Facts are float32 scalars: `grad_norm` before and `clipped_grad_norm` after
            clipping, `clipped` (0 or 1), `grad_scale`, `learning_rate`, `is_valid_step` (0 if the step was skipped),
            `applied_grad_norm`: norm of the step.
        """
        weights, trained = named(params), self.trained(named(params))
        gradients = {name: gradient for name, gradient in named(grads).items() if name in trained}
        norm = norm_of(gradients)
        clipped = self._clip(gradients, norm)
        valid = self._is_valid(norm)
        steps, rules = self._steps(clipped.gradients, opt_state["rules"], weights, trained, step)
        moved = {
            name: weight + steps[name].astype(weight.dtype) if name in steps else weight
            for name, weight in weights.items()
        }
        new: OptState = {"rules": rules}
        if "ema" in opt_state:
            new["ema"] = _advance_average(opt_state["ema"], params, self.optimizer.hparams.ema_decay)
        params, new = _chosen(valid, (_like(params, moved), new), (params, opt_state))
        facts = self._facts(norm, clipped, valid, step) | {"applied_grad_norm": jnp.where(valid, norm_of(steps), 0.0)}
        if self.hparams.grad_norm_individual_vars:
            facts |= {f"grad_norm/{name}": norm_of({name: gradient}) for name, gradient in gradients.items()}
        return params, new, facts

    def averaged(self, opt_state: OptState) -> Tree | None:
        """Return the average of the weights; None if there is none."""
        return opt_state["ema"]["average"] if "ema" in opt_state else None

    def partition(self, opt_state_shapes: OptState, params_axes: Tree) -> Any:
        """Return the logical axes of every leaf of the state: those of its weight, or () if it is of no weight.

        Args:
            opt_state_shapes: the state returned by `init`, or its shapes.
            params_axes: a pytree like the weights, with tuples of axis names or PartitionSpecs as leaves.
        """
        return axes_of_state(opt_state_shapes, named(params_axes, is_leaf=is_axes), self._shapes)

    def _warn_of_no_rate(self, groups: Sequence[WeightGroup]) -> None:
        """Warn of the learning rate 0, the default of Pax; a part of the weights may be frozen by it.

        It also undoes the weight decay of a transformation that has a rate of its own.
        """
        rules = [group.optimizer.inner or group.optimizer for group in groups]
        if rules and all(type(rule).moves_by_rate and not rule.hparams.learning_rate for rule in rules):
            log.warning(
                f"{self.hparams.name}.optimizer: learning_rate is 0, which multiplies every step. Set it.", once=True
            )
        for rule in rules:
            if rule.hparams.weight_decay and not (type(rule).moves_by_rate or rule.hparams.learning_rate):
                log.warning(
                    f"{type(rule).__name__}.weight_decay: is {rule.hparams.weight_decay}, but is multiplied by "
                    "learning_rate, which is 0. Set that to the rate of grad_tx, or let grad_tx decay the weights, as "
                    "optax.adamw does.",
                    once=True,
                )

    def _warn_of_layers_alone(self, group: WeightGroup) -> None:
        """Warn of an optimizer that looks at all weights together, but gets those of one layer at a time."""
        if group.is_stacked and (group.optimizer.inner or group.optimizer).joins_weights():
            log.warning(
                f"{self.hparams.name}.optimizer: the step of a weight depends on the gradients of others, as with "
                "optax.clip_by_global_norm, but repeated layers are updated one at a time, and so are such norms. Set "
                "vectorize_on_repeat_prefix=False to have those of all weights; for clipping, the optimizer's "
                "clip_gradient_norm_to_value.",
                once=True,
            )

    def _refuse_to_average(self, weights: Named) -> None:
        """Raise ConfigError for weights of half precision: an average would hardly move, or not at all."""
        half = [name for name, weight in weights.items() if weight.dtype in (jnp.bfloat16, jnp.float16)]
        if half:
            problem = f"averages {half[0]}, of {weights[half[0]].dtype}, which loses the small steps of an average."
            remedy = "Keep weights in float32 (dtype), and compute in half precision (fprop_dtype)."
            raise refusal(f"{self.hparams.name}.optimizer.ema_decay", problem, remedy)

    # ---- trained weights

    def trained(self, weights: Named) -> set[str]:
        """Return the names of the trained weights."""
        out, only = _patterns(self.hparams.bprop_variable_exclusion), _patterns(self.hparams.bprop_variable_inclusion)
        where = f"{self.hparams.name}.bprop_variable_"
        left_out = matching(out, weights, where=f"{where}exclusion")
        kept = matching(only, weights, where=f"{where}inclusion") if only else set(weights)
        return kept - left_out

    def groups(self, weights: Named) -> list[WeightGroup]:
        """Return the groups of weights and their optimizers."""
        kept = set(weights) if self.hparams.keep_optimizer_state_for_excluded_vars else self.trained(weights)
        found = []
        # Of all weights, not the kept ones: a pattern may match frozen weights only.
        for label, optimizer, names in self.shares(sorted(weights)):
            for stack, members in self._stacks(weights, [name for name in names if name in kept]).items():
                key = "_".join([label, *map(str, stack)])
                found.append(WeightGroup(key, optimizer, self._rule(optimizer, len(stack)), members, bool(stack)))
        return found

    def shares(self, names: Sequence[str]) -> list[tuple[str, BaseOptimizer, Sequence[str]]]:
        """Return (label, optimizer, names of its weights) for each optimizer."""
        return [("main", self.optimizer, names)]

    def _stacks(self, weights: Named, names: Sequence[str]) -> dict[tuple[int, ...], tuple[str, ...]]:
        stacks: dict[tuple[int, ...], list[str]] = {}
        for name in names:
            depth = self._depths.get(name, 0) if self.hparams.vectorize_on_repeat_prefix else 0
            stacks.setdefault(tuple(weights[name].shape[:depth]), []).append(name)
        return {stack: tuple(members) for stack, members in sorted(stacks.items())}

    def _rule(self, optimizer: BaseOptimizer, depth: int) -> Transformation:
        rule = optimizer.rule()
        if self.hparams.scale_update_by_var_norm:
            rule = chain(rule, scale_by_norm())
        if self.hparams.skip_zero_gradients == "weights":
            if optimizer.inner is not None:
                problem = f"is 'weights', but {type(optimizer).__name__} counts the gradients of all weights together."
                remedy = "Leave it out, or use train.accumulate_batches instead."
                raise refusal(f"{self.hparams.name}.skip_zero_gradients", problem, remedy)
            rule = skip_untouched(rule)
        return over_leading_axes(rule, depth)

    # ---- steps

    def _clip(self, gradients: Named, norm: jax.Array) -> Clipped:
        limits = self.optimizer.hparams
        if limits.clip_gradient_norm_to_value:
            return clip_together(gradients, limits.clip_gradient_norm_to_value, norm)
        if limits.clip_gradient_single_norm_to_value:
            depths = self._depths if self.hparams.vectorize_on_repeat_prefix else {}
            return clip_each(gradients, limits.clip_gradient_single_norm_to_value, depths)
        return not_clipped(gradients)

    def _is_valid(self, norm: jax.Array) -> jax.Array:
        wanted = self.hparams
        valid = norm != 0 if wanted.skip_zero_gradients == "global" else jnp.ones((), bool)
        if not wanted.enable_skip_step_on_gradient_anomalies:
            return valid
        if wanted.check_valid_step:
            valid &= jnp.isfinite(norm)
        if wanted.skip_step_gradient_norm_value:
            valid &= norm <= wanted.skip_step_gradient_norm_value
        return valid

    def _steps(
        self, gradients: Named, rules: Mapping[str, Any], weights: Named, trained: set[str], step: jax.Array | int
    ) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        steps: dict[str, jax.Array] = {}
        kept = {}
        given = {name: gradients[name] if name in gradients else jnp.zeros_like(weights[name]) for name in weights}
        for group in self.groups(weights):
            moves, kept[group.key] = group.rule.update(
                _part(given, group.names), rules[group.key], _part(weights, group.names),
                learning_rate=group.optimizer.get_learning_rate(step),
            )  # fmt: skip
            steps |= {name: move for name, move in named(moves).items() if name in trained}
        return steps, kept

    # ---- facts

    def _facts(self, norm: jax.Array, clipped: Clipped, valid: jax.Array, step: jax.Array | int) -> Facts:
        return {
            "grad_norm": norm,
            "clipped": clipped.cut.astype(jnp.float32),
            "clipped_grad_norm": norm_of(clipped.gradients),
            "grad_scale": clipped.scale,
            "learning_rate": self.optimizer.get_learning_rate(step),
            "is_valid_step": valid.astype(jnp.float32),
        }


class MultiOptimizerLearner(Learner):
    """A learner with further optimizers for weights selected by name; the main one updates all others."""

    class HParams(Learner.HParams):
        """Fields of a learner with several optimizers.

        Attributes:
            auxiliary_optimizers: templates of the further optimizers. The clipping limits and the averaging of
                `optimizer` apply to all weights; those of a further one must be unset or equal.
            auxiliary_regex: for each, the regular expression for names of its weights.
            auxiliary_names: for each, its label in facts; by default aux_1, aux_2, ...
        """

        auxiliary_optimizers: Any = ()
        auxiliary_regex: list[str] | tuple[str, ...] = ()
        auxiliary_names: list[str] | tuple[str, ...] = ()

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        where = f"{hparams.name}.auxiliary_optimizers"
        self.auxiliary = [_optimizer(template, where) for template in hparams.auxiliary_optimizers]
        count = len(self.auxiliary)
        self.labels = list(hparams.auxiliary_names) or [f"aux_{number}" for number in range(1, count + 1)]
        if len(hparams.auxiliary_regex) != count or len(self.labels) != count or len(set(self.labels)) != count:
            there = f"{count} auxiliary_optimizers, {len(hparams.auxiliary_regex)} auxiliary_regex"
            raise refusal(hparams.name, f"there are {there}.", "Give one expression, and one name, for each.")
        for label, auxiliary in zip(self.labels, self.auxiliary, strict=True):
            _refuse_limits(f"{hparams.name}.auxiliary_optimizers ({label})", auxiliary, self.optimizer)
            _refuse_limits_inside(hparams.name, f"auxiliary_optimizers ({label})", auxiliary)

    def shares(self, names: Sequence[str]) -> list[tuple[str, BaseOptimizer, Sequence[str]]]:
        """Return (label, optimizer, names of its weights) for each optimizer.

        Raises:
            ConfigError: two expressions match the same weight, or one matches none.
        """
        rest, shares = list(names), []
        for label, optimizer, pattern in zip(self.labels, self.auxiliary, self.hparams.auxiliary_regex, strict=True):
            hits = matching([pattern], names, where=f"{self.hparams.name}.auxiliary_regex")
            twice = sorted(hits - set(rest))
            if twice:
                problem = f"two match {twice[0]}."
                raise refusal(f"{self.hparams.name}.auxiliary_regex", problem, "Let only one match it.")
            rest = [name for name in rest if name not in hits]
            shares.append((label, optimizer, sorted(hits)))
        return [("main", self.optimizer, rest), *shares]

    def _facts(self, norm: jax.Array, clipped: Clipped, valid: jax.Array, step: jax.Array | int) -> Facts:
        rates = {
            f"learning_rate_{label}": optimizer.get_learning_rate(step)
            for label, optimizer in zip(self.labels, self.auxiliary, strict=True)
        }
        return super()._facts(norm, clipped, valid, step) | rates


def _optimizer(template: object, where: str) -> BaseOptimizer:
    """Return the optimizer that a template builds. Raises ConfigError if it builds something else."""
    remedy = "Give a template, e.g. Adam.HParams(learning_rate=1e-3), or OptaxOptimizer.HParams(grad_tx=optax...)."
    return build_a(BaseOptimizer, template, where, remedy)


def _refuse_limits_inside(name: str, field: str, optimizer: BaseOptimizer) -> None:
    """Raise ConfigError if a wrapped optimizer sets clipping limits or averaging, which would be ignored."""
    if optimizer.inner is not None:
        _refuse_limits(f"{name}.{field}.optimizer_tpl", optimizer.inner)
        _refuse_limits_inside(name, f"{field}.optimizer_tpl", optimizer.inner)


def _refuse_limits(where: str, optimizer: BaseOptimizer, main: BaseOptimizer | None = None) -> None:
    """Raise ConfigError if an optimizer sets `LIMITS` other than those of `main`; any at all if that is None."""
    for field in LIMITS:
        value = getattr(optimizer.hparams, field)
        if value and (main is None or value != getattr(main.hparams, field)):
            problem = f"is {value}, but only that of the learner's optimizer holds, for all weights."
            raise refusal(f"{where}.{field}", problem, "Set it there, and leave it out here.")


def _patterns(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _part(weights: Named, names: Sequence[str]) -> Tree:
    return unnamed({name: weights[name] for name in names})


def _like(params: Tree, weights: Named) -> Tree:
    """Return the weights in the structure of `params`."""
    return jax.tree.unflatten(jax.tree.structure(params), [weights[name] for name in named(params)])


def _chosen(valid: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda after, before: jnp.where(valid, after, before), new, old)


def _advance_average(kept: dict[str, Any], params: Tree, decay: float) -> dict[str, Any]:
    """Return the average after the weights of one step, those before its update, are added.

    The decay is min(decay, (1 + n) / (10 + n)) after n updates, so that the influence of the first weights fades soon.

    Source: TensorFlow, `ExponentialMovingAverage(num_updates=n)`.
    """
    count = kept["count"].astype(jnp.float32)
    now = jnp.minimum(decay, (1.0 + count) / (10.0 + count))

    def towards(average: jax.Array, weight: jax.Array) -> jax.Array:
        return (now * average + (1.0 - now) * weight).astype(average.dtype)

    return {"count": kept["count"] + 1, "average": jax.tree.map(towards, kept["average"], params)}


__all__ = ["Axes", "Learner", "MultiOptimizerLearner", "OptState", "WeightGroup"]
