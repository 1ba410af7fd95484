"""Score a whole split, or predict it, batch by batch, without gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xdpx.engines.base import Batch, Engine, State

HostFacts = dict[str, NDArray[Any]]
"""Predictions on the host: one array per name; those without an axis are sums over the batch."""


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
    return loss.metrics(gathered)


def predict(engine: Engine, state: State, batches: Iterable[Batch]) -> Iterator[HostFacts]:
    """Yield what the task predicts for each batch, on the host, in order. Holds one batch at a time."""
    for batch in batches:
        yield {name: to_host(value) for name, value in engine.score(state, batch).items()}


def gather(predictions: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
    """Join the predictions of many batches: rows one after another, sums added up."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for prediction in predictions:
        for name, value in prediction.items():
            parts.setdefault(name, []).append(value)
    return {name: _join(values) for name, values in parts.items()}


def _join(values: list[NDArray[Any]]) -> Any:
    if values[0].ndim == 0:
        return float(np.sum(values, dtype=np.float64))
    return np.concatenate(values)


def to_host(value: Any) -> NDArray[Any]:
    """Give an array on the host, whatever kind of array `value` is. Waits for the device."""
    if hasattr(value, "detach"):  # a torch tensor; bfloat16 has no numpy type
        value = value.detach()
        value = value.float() if "bfloat16" in str(value.dtype) else value
        value = value.cpu().numpy()
    return np.asarray(value)
