"""Metrics of the JAX tasks: (sum, weight) per batch on the device, weighted means over batches on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from xdpx.config.faults import wrong_return
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.engines.spmd.steps import SUM, WEIGHT

Sums = Mapping[str, tuple[Any, Any]]
"""(weighted sum, total weight) by name."""

COUNTS = frozenset({"num_decoded", "num_predictions"})
"""Metrics of our models that count something in a batch: over the batches of a split they add up."""


class BaseMetrics(Configurable):
    """Computes weighted means. Override `of_batch` for other metrics of a batch, `final` for others than means."""

    class HParams(BaseHParams):
        """There are no fields."""

    def of_batch(self, metrics: Sums, per_example: Mapping[str, Any], batch: object) -> Sums:
        """Return (sum, weight) by name for one batch, by default those of the model. Traced by JAX."""
        del per_example, batch
        return metrics

    def final(self, totals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """Return the metrics by name, from the sums over many batches; on the host."""
        return {name: total / weight if weight else float("nan") for name, (total, weight) in totals.items()}


def sums_of_batch(metrics: BaseMetrics, sums: Sums, per_example: Mapping[str, Any], batch: object) -> Sums:
    """Return `metrics.of_batch(...)`. Raises ConfigError, while tracing, if these are not pairs of numbers by name."""
    found: Any = metrics.of_batch(sums, per_example, batch)
    remedy = "Return {name: (sum, weight)} of single numbers."
    if not isinstance(found, Mapping):
        raise wrong_return("metrics", metrics, "of_batch", f"a {type(found).__name__}", remedy)
    for name, pair in found.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(jnp.ndim(part) == 0 for part in pair)):
            raise wrong_return("metrics", metrics, "of_batch", f"no pair of single numbers for '{name}'", remedy)
    return found


def final_of(metrics: BaseMetrics, totals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return `metrics.final(totals)`. Raises ConfigError if these are not numbers by name."""
    found: Any = metrics.final(totals)
    try:
        return {name: float(value) for name, value in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        remedy = "Return {name: number}."
        raise wrong_return("metrics", metrics, "final", f"{found!r:.60}", remedy) from error


def with_counts(totals: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Return totals over a split by whose means what counts is the sum over its batches, not the mean per batch."""
    return {name: (total, min(weight, 1.0) if name in COUNTS else weight) for name, (total, weight) in totals.items()}


class Totals:
    """Adds sums and weights up over batches, in double precision and in order."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, facts: Mapping[str, float]) -> None:
        """Add the sums and weights of one batch, named as by the engine; other facts are left out."""
        for key, total in facts.items():
            name = key.removeprefix(SUM)
            if name != key:
                before = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = (before[0] + float(total), before[1] + float(facts[f"{WEIGHT}{name}"]))

    def by_name(self) -> dict[str, tuple[float, float]]:
        """Return (sum, weight) by name."""
        return dict(self._sums)

    def weights(self) -> dict[str, float]:
        """Return the total weight of each metric, by name."""
        return {name: weight for name, (_, weight) in self._sums.items()}


def weighted_sums(metrics: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Convert (mean, weight) into (sum, weight); with weight 0 the mean may be NaN, and the sum is 0."""
    return {name: (jnp.where(weight == 0, 0.0, mean * weight), weight) for name, (mean, weight) in metrics.items()}
