"""The update rules of x-train: the very steps of PyTorch's, weight by weight and layer by layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch

from xdpx.optimizers.pytorch.adam import Adam as TorchAdam
from xdpx.optimizers.pytorch.lamb import Lamb as TorchLamb
from xdpx.optimizers.pytorch.parameters import AdamParameters
from xdpx.optimizers.spmd.grouped import Adam, GroupedLearner, Lamb, Rule, WeightPlan

SETTINGS = AdamParameters(learning_rate=0.1, weight_decay=0.2, adam_betas=[0.9, 0.99])
RATES, DECAYS = (0.1, 0.05), (0.2, 0.0)
FACTORS, MOMENTA = (0.5, 1.0, 0.25, 0.8), (0.9, 0.85, 0.8, 0.9)


def drawn(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Two layers in one stack, a vector, and one that is not trained."""
    numbers = np.random.default_rng(seed)
    shapes = {"stack": (2, 3, 4), "vector": (5,), "frozen": (2,)}
    return {name: numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def learner(rule: Rule, **settings: Any) -> GroupedLearner:
    plans = {
        "a/stack": WeightPlan(["layer.0", "layer.1"], (2,), RATES, DECAYS),
        "a/vector": WeightPlan(["v"], (), [0.1], [0.0]),
    }
    return GroupedLearner(rule, plans, **settings)


def stepped(made: GroupedLearner, **settings: Any) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    params: Any = {"a": {name: jax.numpy.asarray(value) for name, value in drawn(0).items()}}
    state = made.init(params)
    facts = []
    update = jax.jit(made.update)
    for number, (factor, momentum) in enumerate(zip(FACTORS, MOMENTA, strict=True), 1):
        assert made.rule is not None
        state = {**state, "rates": made.rule.rates(factor, momentum)}
        params, state, found = update({"a": drawn(number)}, state, params, step=number)
        facts.append(found)
    return params["a"], state, facts


@pytest.mark.parametrize("clip_norm", [0.0, 2.0])
@pytest.mark.parametrize(("ours", "theirs"), [(Adam, TorchAdam), (Lamb, TorchLamb)])
def test_steps_are_those_of_pytorch(ours: Any, theirs: Any, clip_norm: float) -> None:
    first = drawn(0)
    layers = [torch.nn.Parameter(torch.from_numpy(layer)) for layer in first["stack"].copy()]
    vector = torch.nn.Parameter(torch.from_numpy(first["vector"]))
    groups = [
        {"params": [each], "lr": rate, "weight_decay": decay}
        for each, rate, decay in zip(layers, RATES, DECAYS, strict=True)
    ]
    optimizer = theirs(SETTINGS, groups=[*groups, {"params": [vector], "lr": 0.1, "weight_decay": 0.0}])
    for number, (factor, momentum) in enumerate(zip(FACTORS, MOMENTA, strict=True), 1):
        gradient = drawn(number)
        norm = np.sqrt(sum((gradient[name] ** 2).sum() for name in ("stack", "vector")))
        shrink = max(norm / clip_norm, 1.0) if clip_norm else 1.0
        for each, value in zip([*layers, vector], [*gradient["stack"], gradient["vector"]], strict=True):
            each.grad = torch.from_numpy(value / shrink)
        for group, rate in zip(optimizer.param_groups, (*RATES, 0.1), strict=True):
            group["lr"], group["betas"] = rate * factor, (momentum, 0.99)
        optimizer.step()
    weights, _, facts = stepped(learner(ours(SETTINGS), clip_norm=clip_norm))
    for index, layer in enumerate(layers):
        np.testing.assert_allclose(weights["stack"][index], layer.detach().numpy(), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(weights["vector"], vector.detach().numpy(), rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(weights["frozen"], first["frozen"])
    assert float(facts[-1]["grad_norm"]) == pytest.approx(norm, rel=1e-6)
    assert float(facts[-1]["learning_rate"]) == pytest.approx(0.08)
    assert {float(each["clipped"]) for each in facts} == {float(bool(clip_norm))}


def test_a_gradient_that_is_no_number_moves_nothing() -> None:
    made = learner(Adam(SETTINGS), ema_decay=0.5)
    params = {"a": drawn(0)}
    state = made.init(params)
    bad = {"a": {**drawn(1), "vector": np.full(5, np.nan, np.float32)}}
    after, kept, facts = jax.jit(made.update)(bad, state, params, step=0)
    assert float(facts["is_valid_step"]) == 0.0
    for ours, theirs in ((after, params), (kept, state)):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_averages_follow_each_update_from_the_first_weights_on() -> None:
    made = learner(Adam(SETTINGS), ema_decay=0.9)
    params = {"a": drawn(0)}
    after, state, _ = made.update({"a": drawn(1)}, made.init(params), params, step=0)
    expected = 0.9 * params["a"]["stack"] + 0.1 * np.asarray(after["a"]["stack"])
    np.testing.assert_allclose(made.averaged(state)["a"]["stack"], expected, rtol=1e-6)
    assert GroupedLearner(None, {}).init(params) == {}


def test_sizes_of_gradients_are_told_for_each_layer_of_a_stack() -> None:
    _, _, facts = stepped(learner(Adam(SETTINGS), sizes=True))
    last = np.abs(drawn(4)["stack"])
    for index in (0, 1):
        assert float(facts[-1][f"size/mean/layer.{index}"]) == pytest.approx(last[index].mean(), rel=1e-6)
        assert float(facts[-1][f"size/largest/layer.{index}"]) == pytest.approx(last[index].max(), rel=1e-6)


def test_a_beta_of_zero_keeps_no_mean() -> None:
    rates = Adam(SimpleNamespace(adam_betas=[0.0, 0.9], adam_eps=1e-6)).rates(1.0, None)
    assert rates["log_first"] == -np.inf
