"""The optimizers of x-train on JAX: equal numbers as on PyTorch, with its groups of weights and its averaging.

A weight here may be a stack of all layers; each layer uses the settings of its own group on PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdpx.optimizers.spmd.gradients import norm_of
from xdpx.optimizers.spmd.partition import is_axes
from xdpx.optimizers.spmd.trees import ROOT, Tree, named, unnamed

Rates = Mapping[str, Any]
"""Values set by the host for an update: `factor` of all learning rates, `first`, the first beta, and `log_first`."""


@dataclass(frozen=True)
class WeightPlan:
    """Settings of the updates of one weight.

    Attributes:
        names: its name on PyTorch; several for the layers of a stack.
        stack: leading axes of the stack; () for a single weight.
        rates: learning rate of each layer.
        decays: weight decay of each layer.
    """

    names: Sequence[str]
    stack: tuple[int, ...]
    rates: Sequence[float]
    decays: Sequence[float]

    def spread(self, values: Sequence[float], rank: int) -> Any:
        """Return one value per layer, in a shape that broadcasts with a weight of `rank` axes."""
        if len(set(values)) == 1:
            return np.float32(values[0])
        return np.asarray(values, np.float32).reshape(*self.stack, *[1] * (rank - len(self.stack)))


@dataclass(frozen=True)
class Moments:
    """Bias-corrected running mean of the gradient, and root of that of its square."""

    mean: jax.Array
    root: jax.Array


class Rule:
    """An update rule, from running means to new weights.

    Args:
        parameters: adam_betas, adam_eps.
    """

    def __init__(self, parameters: Any) -> None:
        self.first, self.second = parameters.adam_betas
        self.eps = parameters.adam_eps

    def rates(self, factor: float, momentum: float | None) -> dict[str, np.float32]:
        """Return the values set by the host for an update, from the factor and the momentum of the schedule."""
        first = self.first if momentum is None else momentum
        numbers = {"factor": factor, "first": first, "log_first": _log(first)}
        return {name: np.float32(number) for name, number in numbers.items()}

    def moved(self, weight: jax.Array, moments: Moments, rate: Any, decay: Any, plan: WeightPlan) -> jax.Array:
        """Return the new weight."""
        raise NotImplementedError


class Adam(Rule):
    """Adam with decoupled weight decay. Source: Loshchilov and Hutter, ICLR 2019, algorithm 2."""

    def moved(self, weight: jax.Array, moments: Moments, rate: Any, decay: Any, plan: WeightPlan) -> jax.Array:
        """Return the weight after decay and the Adam step."""
        moved: jax.Array = weight * (1.0 - rate * decay) - rate * moments.mean / (moments.root + self.eps)
        return moved


class Lamb(Rule):
    """Adam with steps scaled to each weight's norm. Source: You et al., ICLR 2020, algorithm 2, with phi(z) = z."""

    def moved(self, weight: jax.Array, moments: Moments, rate: Any, decay: Any, plan: WeightPlan) -> jax.Array:
        """Return the weight after a step that is proportional to its norm, per layer."""
        direction = moments.mean / (moments.root + self.eps) + decay * weight
        axes = tuple(range(len(plan.stack), weight.ndim))
        ours, theirs = (jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True)) for x in (weight, direction))
        usable = (ours > 0) & (theirs > 0)
        trust = jnp.where(usable, ours / jnp.where(usable, theirs, 1.0), 1.0)
        moved: jax.Array = weight - rate * direction * trust
        return moved


class GroupedLearner:
    """A learner for weights that each have their own learning rate and weight decay.

    Args:
        rule: the update rule; None for an engine that only evaluates.
        plans: settings of each trained weight, by its path (`a/b/w`); other weights are frozen.
        clip_norm: maximum norm of the gradient; 0: no clipping.
        ema_decay: decay of the averaged weights; 1: no average.
        sizes: whether to return the sizes of all gradients too.

    Attributes:
        SIZE: prefix of the facts about the gradient of one weight: `size/mean/<name>`, `size/largest/<name>`,
            `size/zeros/<name>` (share of zeros).
    """

    SIZE = "size/"

    def __init__(
        self,
        rule: Rule | None,
        plans: Mapping[str, WeightPlan],
        *,
        clip_norm: float = 0.0,
        ema_decay: float = 1.0,
        sizes: bool = False,
    ) -> None:
        self.rule = rule
        self.plans = {f"{ROOT}/{path}": plan for path, plan in plans.items()} if rule is not None else {}
        self.clip_norm, self.ema_decay, self.sizes = clip_norm, ema_decay, sizes

    def prepare(self, params_axes: Tree) -> None:
        """Do nothing: the logical axes of the weights are not needed."""

    def init(self, params: Tree) -> dict[str, Any]:
        """Return the initial state."""
        if self.rule is None:
            return {}
        trained = {name: weight for name, weight in named(params).items() if name in self.plans}
        rates = {name: jnp.asarray(value) for name, value in self.rule.rates(1.0, None).items()}
        kept: dict[str, Any] = {"steps": jnp.zeros((), jnp.int32), "rates": rates}
        kept |= {part: unnamed(jax.tree.map(jnp.zeros_like, trained)) for part in ("mean", "square")}
        return kept | ({"averaged": jax.tree.map(jnp.array, params)} if self.ema_decay < 1.0 else {})

    def update(
        self, grads: Tree, opt_state: Mapping[str, Any], params: Tree, *, step: object
    ) -> tuple[Tree, dict[str, Any], dict[str, Any]]:
        """Return (weights, state, facts) after one update; all is unchanged if a gradient is not finite."""
        weights = named(params)
        gradients = {name: gradient for name, gradient in named(grads).items() if name in self.plans}
        norm = norm_of(gradients)
        shrink = 1.0 / jnp.maximum(norm / self.clip_norm, 1.0) if self.clip_norm > 0 else jnp.ones((), jnp.float32)
        # The engine sets the factor to NaN after an update that ends the training.
        valid, steps = jnp.isfinite(norm) & jnp.isfinite(opt_state["rates"]["factor"]), opt_state["steps"] + 1
        moved, kept = dict(weights), {part: dict(named(opt_state[part])) for part in ("mean", "square")}
        for name, gradient in gradients.items():
            found = self._moved(name, weights[name], gradient * shrink, kept, opt_state["rates"], steps)
            moved[name], kept["mean"][name], kept["square"][name] = found
        new: dict[str, Any] = {"steps": steps, "rates": opt_state["rates"], **{k: unnamed(v) for k, v in kept.items()}}
        params_after = jax.tree.unflatten(jax.tree.structure(params), [moved[name] for name in weights])
        if "averaged" in opt_state:
            new["averaged"] = self._averaged(opt_state["averaged"], params_after)
        after, before = (params_after, new), (params, dict(opt_state))
        chosen = jax.tree.map(lambda ours, old: jnp.where(valid, ours, old), after, before)
        facts = self._facts(norm, valid, opt_state["rates"]) | self._sizes(gradients, shrink)
        return chosen[0], chosen[1], facts

    def averaged(self, opt_state: Mapping[str, Any]) -> Tree | None:
        """Return the averaged weights; None if there are none."""
        return opt_state.get("averaged")

    def partition(self, opt_state_shapes: Mapping[str, Any], params_axes: Tree) -> dict[str, Any]:
        """Return the logical axes of every leaf of the state: those of its weight, or None."""
        if not opt_state_shapes:
            return {}
        axes = {name: leaf for name, leaf in named(params_axes, is_leaf=is_axes).items() if name in self.plans}
        parts: dict[str, Any] = {"steps": None, "rates": dict.fromkeys(opt_state_shapes["rates"])}
        parts |= {part: unnamed(axes) for part in ("mean", "square")}
        return parts | ({"averaged": params_axes} if "averaged" in opt_state_shapes else {})

    def _moved(
        self, name: str, weight: Any, gradient: Any, kept: Mapping[str, Mapping[str, Any]], rates: Rates, steps: Any
    ) -> tuple[Any, Any, Any]:
        """Return (new weight, new mean, new mean square)."""
        rule, plan = self.rule, self.plans[name]
        if rule is None:
            raise TypeError("this is a bug: an engine without an optimizer was asked for an update.")
        mean = kept["mean"][name] + (gradient - kept["mean"][name]) * (1.0 - rates["first"])
        square = kept["square"][name] * rule.second + jnp.square(gradient) * (1.0 - rule.second)
        taken = steps.astype(jnp.float32)
        # 1 - beta**n, computed without the loss of digits for beta near 1.
        of_mean, of_square = -jnp.expm1(taken * rates["log_first"]), -jnp.expm1(taken * np.float32(_log(rule.second)))
        moments = Moments(mean / of_mean, jnp.sqrt(square) / jnp.sqrt(of_square))
        rate = plan.spread(plan.rates, weight.ndim) * rates["factor"]
        return rule.moved(weight, moments, rate, plan.spread(plan.decays, weight.ndim), plan), mean, square

    def _averaged(self, averages: Tree, params: Tree) -> Tree:
        weights = named(params)
        found = {
            name: mean + (weights[name] - mean) * (1.0 - self.ema_decay) if name in self.plans else mean
            for name, mean in named(averages).items()
        }
        return jax.tree.unflatten(jax.tree.structure(averages), list(found.values()))

    def _facts(self, norm: Any, valid: Any, rates: Rates) -> dict[str, Any]:
        highest = max((rate for plan in self.plans.values() for rate in plan.rates), default=0.0)
        clipped = norm > self.clip_norm if self.clip_norm > 0 else jnp.zeros((), bool)
        return {
            "grad_norm": norm,
            "clipped": clipped.astype(jnp.float32),
            "learning_rate": jnp.float32(highest) * rates["factor"],
            "is_valid_step": valid.astype(jnp.float32),
        }

    def _sizes(self, gradients: Mapping[str, Any], shrink: Any) -> dict[str, Any]:
        if not self.sizes:
            return {}
        facts = {}
        for path, gradient in gradients.items():
            plan = self.plans[path]
            layers = jnp.abs(gradient * shrink).reshape(len(plan.names), -1)
            for index, name in enumerate(plan.names):
                facts[f"{self.SIZE}mean/{name}"] = layers[index].mean()
                facts[f"{self.SIZE}largest/{name}"] = layers[index].max()
                facts[f"{self.SIZE}zeros/{name}"] = (layers[index] == 0).mean(dtype=jnp.float32)
        return facts


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf
