"""The losses of x-train on JAX, beside those on PyTorch, over batches that were filled up."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xdpx.losses import losses
from xdpx.tasks.spmd.paired import LOSSES

ROWS, CLASSES, REAL = 6, 7, 4


class Spoken(torch.nn.Module):
    """A network whose logits are given, one after the other."""

    def __init__(self, *logits: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.logits = [torch.from_numpy(each) for each in logits]

    def forward(self, **_: Any) -> torch.Tensor:
        return self.logits.pop(0)


def both(name: str, **keys: Any) -> tuple[Any, Any]:
    """Return the loss on PyTorch and its counterpart."""
    theirs = losses[name](losses[name].Parameters(**keys))
    return theirs, LOSSES[name](theirs.parameters)


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def filled_up(target: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return a batch of more rows than there are targets."""
    whole = np.zeros(ROWS, np.int32)
    whole[: len(target)] = target
    return {"target": jnp.asarray(whole), "weights": jnp.asarray(np.arange(ROWS) < len(target), jnp.float32)}


@pytest.mark.parametrize("dropout_twice", [False, True])
def test_cross_entropy_and_r_drop_give_the_same_sums(dropout_twice: bool) -> None:
    theirs, ours = both("cross_entropy", use_r_dropout=dropout_twice, kl_alpha=0.7)
    target = np.array([0, 6, 2, 2])
    passes = [drawn(ROWS, CLASSES, seed=seed) for seed in range(ours.passes)]
    batch = {"net_input": {}, "target": torch.from_numpy(target)}
    wanted, count, facts = theirs(Spoken(*(each[:REAL] for each in passes)), batch)
    loss, number, ours_facts = ours.train([jnp.asarray(each) for each in passes], filled_up(target))
    assert (ours.passes, float(number), count) == (1 + dropout_twice, REAL, REAL)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-6)
    assert set(facts) == set(ours_facts) == set(ours.facts)
    for name in facts:
        assert float(ours_facts[name]) == pytest.approx(float(facts[name]), rel=1e-5), name


@pytest.mark.parametrize(
    "keys", [{}, {"predict_threshold": 0.4}, {"predict_threshold": 0.2, "negative_classes_in_f1": [3, 1]}]
)
def test_predictions_are_the_same(keys: dict[str, Any]) -> None:
    theirs, ours = both("cross_entropy", **keys)
    logits, target = drawn(ROWS, CLASSES, seed=3), np.array([1, 2, 3, 4])
    wanted = theirs.predictions(Spoken(logits[:REAL]), {"net_input": {}, "target": torch.from_numpy(target)})
    given = ours.predictions(jnp.asarray(logits), filled_up(target))
    np.testing.assert_allclose(given["prob"][:REAL], wanted["prob"], rtol=1e-6)
    np.testing.assert_array_equal(given["pred"][:REAL], wanted["pred"])
    assert float(given["loss_sum"]) == pytest.approx(float(wanted["loss_sum"]), rel=1e-6)
    assert float(given["count"]) == REAL
    unlabelled = ours.predictions(jnp.asarray(logits), {"weights": jnp.ones(ROWS)})
    assert set(unlabelled) == {"prob", "pred"}


def test_masked_tokens_give_the_same_sums() -> None:
    theirs, ours = both("masked_lm")
    logits, target = drawn(2, 3, CLASSES), np.array([[1, 5, 0], [3, 0, 0]])
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    kept = weights.astype(bool)
    batch = {"net_input": {}, "target": torch.from_numpy(target[kept])}
    wanted = theirs.predictions(Spoken(logits[kept]), batch)
    given = ours.predictions(jnp.asarray(logits), {"target": jnp.asarray(target), "weights": jnp.asarray(weights)})
    assert set(given) == set(wanted)
    for name in wanted:
        assert float(given[name]) == pytest.approx(float(wanted[name]), rel=1e-6), name


def test_next_tokens_give_the_same_sums() -> None:
    theirs, ours = both("causal_lm")
    logits, target = drawn(2, 3, CLASSES), np.array([[1, 5, -100], [3, -100, -100]])
    wanted = theirs.predictions(Spoken(logits), {"net_input": {}, "target": torch.from_numpy(target)})
    weights = jnp.asarray(target != -100, jnp.float32)
    given = ours.predictions(jnp.asarray(logits), {"target": jnp.maximum(target, 0), "weights": weights})
    assert {name: float(value) for name, value in given.items()} == pytest.approx(
        {name: float(value) for name, value in wanted.items()}, rel=1e-6
    )
