"""A task that is small enough to be checked by hand, and an engine without arrays to train it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.plan import Position
from xdpx.engines.base import GradientSize


class ToyEngine:
    """Moves one number towards the mean of each group, with momentum. The state consists of plain floats."""

    device_text = "paper"
    packages = events = ()
    checks_each = False
    tell: Any = None

    def model_and_optimizer(self, state: Any) -> tuple[None, None]:
        return None, None

    def closing_line(self) -> str:
        return ""

    def start(self, seed: int) -> dict[str, float]:
        return {"weight": float(seed), "speed": 0.0}

    def update(self, state: Any, group: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, float]]:
        values = np.concatenate([batch["value"] for batch in group])
        gap = float(values.mean()) - state["weight"]
        speed = 0.9 * state["speed"] + 0.1 * gap
        facts = {"loss_sum": float(np.abs(values - state["weight"]).sum()), "count": len(values), "num_tokens": 3}
        facts |= {"grad_norm": abs(gap), "clipped": 0.0, "skipped": 0.0, "learning_rate": 0.1}
        return {"weight": state["weight"] + speed, "speed": speed}, facts

    def score(self, state: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"error": np.abs(batch["value"] - state["weight"]), "count": float(len(batch["value"]))}

    def take_score(self, state: Any, score: float) -> None:
        assert isinstance(score, float)

    def snapshot(self, state: Any, *, wanted: bool | None = None) -> dict[str, Any]:
        return dict(state)

    def restore(self, saved: Mapping[str, Any]) -> dict[str, float]:
        return dict(saved)

    def weights(self, state: Any) -> dict[str, Any]:
        return {"weight": state["weight"]}

    def is_finite(self, state: Any) -> bool:
        return math.isfinite(state["weight"])

    def gradient_sizes(self, state: Any) -> dict[str, GradientSize]:
        return {"weight": GradientSize(abs(state["speed"]), abs(state["speed"]), 0.0)}

    def with_weights(self, weights: Mapping[str, Any]) -> dict[str, float]:
        return {**weights, "speed": 0.0}

    def facts_to_host(self, facts: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(value) for name, value in facts.items()}

    def predictions_to_host(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        return dict(predictions)


class ToyLoss:
    """The score is the negative mean distance, so higher is better."""

    average = None

    def scores(self, gathered: Mapping[str, Any]) -> dict[str, float]:
        return {"closeness": -float(gathered["error"].mean()), "rows": gathered["count"]}

    def keys_by_class(self) -> list[str]:
        return []

    def about_one_class(self, names: Any, num_classes: int) -> dict[str, int]:
        return {}

    def refuse_grades(self, names: Any, labels: Any) -> None:
        pass

    def each_class(self, gathered: Mapping[str, Any], labels: Any) -> list[Any]:
        return []


def toy_groups(
    start: tuple[int, int] = (1, 0), *, per_epoch: int = 8
) -> Iterator[tuple[Position, list[dict[str, Any]]]]:
    epoch, group = start
    while True:
        while group < per_epoch:
            drawn = np.random.default_rng([epoch, group, 11]).normal(size=(2, 4))
            group += 1
            yield Position(epoch, group), [{"value": values} for values in drawn]
        epoch, group = epoch + 1, 0


@pytest.fixture
def engine() -> ToyEngine:
    return ToyEngine()


@pytest.fixture
def loss() -> ToyLoss:
    return ToyLoss()


@pytest.fixture
def groups() -> Any:
    return toy_groups


@pytest.fixture
def held_out() -> Any:
    return lambda: iter([{"value": np.array([0.0, 1.0])}, {"value": np.array([2.0])}])
