"""Build the JAX counterparts of a model, loss and optimizer of x-train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.engines.spmd.paired import Pair
from xdpx.models.spmd.base_layer import NON_TRAINABLE, PARAMS, RANDOM, eval_context
from xdpx.models.spmd.counterparts import BertClassification, BertLanguageModel, CausalLanguageModel, Counterpart
from xdpx.models.spmd.exchange.maps import LAYER, Exchange
from xdpx.optimizers.spmd.grouped import Adam, GroupedLearner, Lamb, WeightPlan
from xdpx.tasks.spmd.losses import CrossEntropy, MaskedTokens, TokenCrossEntropy
from xdpx.tasks.spmd.single_task import LossOutputs

Variables = Mapping[str, Any]

MODELS = {"bert_classification": BertClassification, "bert_lm": BertLanguageModel, "causal_lm": CausalLanguageModel}
LOSSES: dict[str, type[CrossEntropy | MaskedTokens | TokenCrossEntropy]] = {
    "cross_entropy": CrossEntropy,
    "masked_lm": MaskedTokens,
    "causal_lm": TokenCrossEntropy,
}
RULES = {"adam": Adam, "lamb": Lamb}
"""The JAX class for each registered name; `config.spmd_keys.COUNTERPARTS` lists the names without importing jax."""


class PairedTask:
    """A task of x-train on JAX: the counterpart of its model, and its loss.

    Args:
        counterpart: of the model.
        loss: of `tasks.spmd.losses`.
        learner: updates the weights from their gradients.
    """

    def __init__(self, counterpart: Counterpart, loss: Any, learner: GroupedLearner) -> None:
        self.counterpart, self.loss, self.learner = counterpart, loss, learner
        self.model: Any = counterpart.template.Instantiate()

    def init(self, key: jax.Array, batch: Any) -> dict[str, Any]:
        """Return all variables, boxed with the names of their axes. To be traced by JAX."""
        keys = dict(zip((PARAMS, RANDOM), jax.random.split(key), strict=True))
        with eval_context(True):
            variables = self.model.init(keys, batch, method=self._forward)
        return {PARAMS: variables[PARAMS], NON_TRAINABLE: variables.get(NON_TRAINABLE, {})}

    def train_loss(self, variables: Variables, batch: Any, key: jax.Array) -> tuple[jax.Array, jax.Array, LossOutputs]:
        """Return (loss sum in nats, count, `LossOutputs`) of one micro-batch."""
        keys = [key, *jax.random.split(key, self.loss.passes - 1)]
        with eval_context(False):
            logits = [self.logits(variables, batch, {RANDOM: each}) for each in keys]
        loss_sum, count, facts = self.loss.train(logits, batch)
        sums = {name: (jax.lax.stop_gradient(value), 0.0) for name, value in facts.items()}
        return loss_sum, count, LossOutputs(sums, variables[NON_TRAINABLE], {})

    def eval_metrics(self, variables: Variables, batch: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return (sums with weight 1, values per row, {}) of a batch."""
        found = self.predict(variables, batch)
        sums = {name: (value, 1.0) for name, value in found.items() if jnp.ndim(value) == 0}
        return sums, {name: value for name, value in found.items() if name not in sums}, {}

    def predict(self, variables: Variables, batch: Any) -> dict[str, Any]:
        """Return the predictions for a batch, including the rows that only pad it."""
        with eval_context(True):
            found: dict[str, Any] = self.loss.predictions(self.logits(variables, batch, {}), batch)
        return found

    def decode(self, variables: Variables, batch: Any, key: jax.Array) -> Any:
        """Raise ValueError: x-train does not decode."""
        raise ValueError("a task of x-train decodes nothing: continue texts by an experiment (x-exp, mode decode).")

    def _forward(self, model: Any, batch: Any) -> jax.Array:
        return self.counterpart.logits(model, batch)

    def logits(self, variables: Variables, batch: Any, rngs: Mapping[str, Any]) -> jax.Array:
        """Return the logits of a batch in float32, shaped as the counterpart returns them. To be traced by JAX."""
        logits: jax.Array = self.model.apply(variables, batch, rngs=dict(rngs), method=self._forward)
        return logits.astype(jnp.float32)


def pair_with(
    host: Any,
    names: Mapping[str, str],
    *,
    optimizer: Any = None,
    groups: Sequence[Mapping[str, Any]] = (),
    bf16: bool = False,
    **limits: Any,
) -> Pair:
    """Return the task, counterpart and optimizer that compute a task of x-train on JAX.

    Args:
        host: the task on PyTorch, with model and loss.
        names: registered names of model, loss and optimizer.
        optimizer: parameters of the optimizer; None for an engine that only scores.
        groups: of the weights that are trained, as `parameter_groups` gives them.
        bf16: compute in bfloat16.
        limits: clip_norm, ema_decay, sizes, as `GroupedLearner` takes them.

    Raises:
        ConfigError: the architecture is not supported on JAX.
    """
    counterpart = MODELS[names["model"]](host.model, dtype=jnp.bfloat16 if bf16 else None)
    loss = LOSSES[names["loss"]](host.loss.parameters)
    rule = None if optimizer is None else RULES[names["optimizer"]](optimizer)
    plans = {} if optimizer is None else plans_of(host.model, counterpart.exchange, groups, optimizer.weight_decay)
    learner = GroupedLearner(rule, plans, **limits)
    return Pair(PairedTask(counterpart, loss, learner), counterpart, loss.facts, rule)


def plans_of(
    model: Any, exchange: Exchange, groups: Sequence[Mapping[str, Any]], weight_decay: float
) -> dict[str, WeightPlan]:
    """Return how each trained weight is updated, by its path on JAX.

    Raises:
        TypeError: only some layers of a stack are trained.
    """
    of_weight = {id(weight): group for group in groups for weight in group["params"]}
    known = {name: of_weight.get(id(weight)) for name, weight in model.named_parameters()}
    plans = {}
    for path, stacked, names in _stacks(exchange):
        rules = [rule for rule in (known.get(name) for name in names) if rule is not None]
        if len(rules) not in {0, len(names)}:
            raise TypeError(
                f"{names[0]}: is trained in {len(rules)} of {len(names)} layers, which engine spmd cannot do."
            )
        if rules:
            decays = [float(rule.get("weight_decay", weight_decay)) for rule in rules]
            plans[path] = WeightPlan(names, stacked, [float(rule["lr"]) for rule in rules], decays)
    return plans


def _stacks(exchange: Exchange) -> list[tuple[str, tuple[int, ...], list[str]]]:
    """Return (path on JAX, leading dimensions of a stack of layers, names on PyTorch) of each weight."""
    numbers = [str(number) for number in range(exchange.layers)]
    found: list[tuple[str, tuple[int, ...], list[str]]] = []
    for pair in exchange.pairs:
        if LAYER not in pair.theirs:
            found.append((pair.ours, (), [pair.theirs]))
        elif LAYER in pair.ours:
            found += [(pair.ours.replace(LAYER, one), (), [pair.theirs.replace(LAYER, one)]) for one in numbers]
        else:
            stacked = exchange.stacked or (exchange.layers,)
            found.append((pair.ours, stacked, [pair.theirs.replace(LAYER, one) for one in numbers]))
    return found
