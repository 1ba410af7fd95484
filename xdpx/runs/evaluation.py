"""Score a whole split, or predict it, batch by batch, without gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xdpx.engines.base import Batch, Engine, State

HostPredictions = Mapping[str, NDArray[Any] | float]
"""Predictions of one batch on the host: arrays with a row per sample, and single numbers that add up."""


class Metrics(Protocol):
    """What scores gathered predictions: every loss of `xdpx.losses` is one."""

    def metrics(self, gathered: dict[str, Any]) -> dict[str, float]:
        """Compute every metric once, over a whole split."""
        ...


def evaluate(engine: Engine, state: State, batches: Iterable[Batch], loss: Metrics) -> dict[str, float]:
    """Give the metrics of a split, each computed once over all of it, so that batches do not matter.

    Raises:
        ValueError: there is nothing to score.
    """
    gathered = gather(predict(engine, state, batches))
    if not gathered:
        raise ValueError("there is no sample to score: the split is empty.")
    score = getattr(loss, "scores", loss.metrics)  # `scores` also gives the metrics that a config asks for by name
    # Plain floats: numpy's own would be written into checkpoints, and could not be read back safely.
    return {name: float(value) for name, value in score(gathered).items()}


def predict(engine: Engine, state: State, batches: Iterable[Batch]) -> Iterator[HostPredictions]:
    """Yield what the task predicts for each batch, on the host, in order. Holds one batch at a time."""
    for batch in batches:
        yield engine.predictions_to_host(engine.score(state, batch))


def gather(predictions: Iterable[HostPredictions]) -> dict[str, Any]:
    """Join the predictions of many batches: rows one after another, single numbers added up in double precision."""
    parts: dict[str, list[Any]] = {}
    for prediction in predictions:
        for name, value in prediction.items():
            parts.setdefault(name, []).append(value)
    return {name: _join(values) for name, values in parts.items()}


def _join(values: list[Any]) -> Any:
    rows = isinstance(values[0], np.ndarray) and values[0].ndim > 0
    return np.concatenate(values) if rows else float(np.sum(values, dtype=np.float64))
