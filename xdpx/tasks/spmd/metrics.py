"""What is measured: per batch as (sum, weight) on the device, over many batches as weighted means on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.hparams import BaseHParams, Configurable

Sums = Mapping[str, tuple[Any, Any]]
"""(sum over what was counted, how much was counted), by name."""

WEIGHT = "_weight"
"""What the name of a weight ends in, where sums and weights are in one flat mapping (facts of the engine)."""


class BaseMetrics(Configurable):
    """Weighted means. Override `of_batch` to measure something else, `final` to make something else of the sums."""

    class HParams(BaseHParams):
        """Nothing of its own."""

    def of_batch(self, metrics: Sums, per_example: Mapping[str, Any], batch: object) -> Sums:
        """Return (sum, weight) by name for one batch; traced. By default those of the model."""
        del per_example, batch
        return metrics

    def final(self, totals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """Return a number by name from the sums over many batches; on the host."""
        return {name: total / weight if weight else float("nan") for name, (total, weight) in totals.items()}


class Totals:
    """Adds sums and weights up over batches, in double precision and in order."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, facts: Mapping[str, float]) -> None:
        """Add the numbers of one batch: `name` and `name_weight`; whatever has no weight is left out."""
        for name, total in facts.items():
            weight = facts.get(name + WEIGHT)
            if weight is not None:
                before = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = (before[0] + float(total), before[1] + float(weight))

    def by_name(self) -> dict[str, tuple[float, float]]:
        """Return (sum, weight) by name."""
        return dict(self._sums)

    def weights(self) -> dict[str, float]:
        """Return how much was counted, by name."""
        return {name: weight for name, (_, weight) in self._sums.items()}


def weighted_sums(metrics: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Turn (mean, weight) into (sum, weight)."""
    return {name: (mean * weight, weight) for name, (mean, weight) in metrics.items()}
