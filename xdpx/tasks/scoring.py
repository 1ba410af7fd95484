"""Score a whole split, or predict it, batch by batch, without gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.evaluation_data import SURPLUS
from xdpx.engines.base import Batch, Engine, State
from xdpx.logger import log
from xdpx.metrics.classes import ClassScore
from xdpx.utils.distributed_utils import by_the_first, collected

Place = TypeVar("Place")

SHOWN_IN_A_LINE = 12
SHOWN_IN_A_TABLE = 100
"""Of more classes than these only half as many are shown, those with the lowest F1."""

HostPredictions = Mapping[str, NDArray[Any] | float]
"""Predictions of one batch on the host: arrays with a row per sample, and single numbers that add up."""


class Scores(NamedTuple):
    """What a split scores.

    Attributes:
        metrics: each computed once over all of it.
        each_class: how well each class is told; empty where nothing is classified.
    """

    metrics: dict[str, float]
    each_class: list[ClassScore]


class Metrics(Protocol):
    """What scores gathered predictions: every loss of `xdpx.losses` is one."""

    @property
    def average(self) -> str | None:
        """How classes are averaged in precision, recall and F1; None where they are not."""
        ...

    def scores(self, gathered: dict[str, Any]) -> dict[str, float]:
        """Compute every metric once, over a whole split, those that a config asks for by name, too."""
        ...

    def each_class(self, gathered: dict[str, Any], labels: Sequence[str] | None) -> list[ClassScore]:
        """Return how well each class is told; none where nothing is classified."""
        ...


def evaluate(engine: Engine, state: State, batches: Iterable[Batch], loss: Metrics) -> dict[str, float]:
    """Return the metrics of a split, each computed once over all of it, so that batches do not matter.

    Raises:
        ValueError: there is nothing to score.
    """
    return score(engine, state, batches, loss).metrics


def score(
    engine: Engine, state: State, batches: Iterable[Batch], loss: Metrics, *, labels: Sequence[str] | None = None
) -> Scores:
    """Return the metrics of a split, and how well each class is told; on all processes.

    Args:
        engine: predicts.
        state: of the engine.
        batches: of this process: its share of all batches, `dealt` out in turn.
        loss: computes the metrics, by the first process and from the predictions of all, in the order of one process.
        labels: names of the classes.

    Raises:
        ValueError: there is nothing to score.
    """
    return score_placed(engine, state, ((None, batch) for batch in batches), loss, labels=labels)[0]


def score_placed(
    engine: Engine,
    state: State,
    batches: Iterable[tuple[Place, Batch]],
    loss: Metrics,
    *,
    labels: Sequence[str] | None = None,
) -> tuple[Scores, dict[str, Any], list[Place]]:
    """Return what `score` does, and on the first process also the predictions: gathered, and the place of each batch.

    Args:
        engine: predicts.
        state: of the engine.
        batches: of this process, each with its place: whatever tells the caller where its rows come from.
        loss: computes the metrics.
        labels: names of the classes.

    Raises:
        ValueError: there is nothing to score.
    """
    with log.scoring():
        found = collected(_predict_placed(engine, state, batches))
    gathered = gather(predictions for _, predictions in found)
    return by_the_first(lambda: _scores(gathered, loss, labels)), gathered, [place for place, _ in found]


def _scores(gathered: dict[str, Any], loss: Metrics, labels: Sequence[str] | None) -> Scores:
    if not gathered:
        raise ValueError("there is no sample to score: the split is empty.")
    # Plain floats: numpy's own would be written into checkpoints, and could not be read back safely.
    found = {name: float(value) for name, value in loss.scores(gathered).items()}
    return Scores(found, loss.each_class(gathered, labels))


def lowest(scores: Sequence[ClassScore], most: int) -> tuple[str, list[ClassScore]]:
    """Return all classes, or of more than `most` half as many, those with the lowest F1; and what they are in words."""
    if len(scores) <= most:
        return "each class", list(scores)
    few = most // 2
    return f"the lowest {few} of {len(scores):,} classes", sorted(scores, key=lambda one: one.f1)[:few]


def in_one_line(scores: Sequence[ClassScore]) -> str:
    """Return precision, recall and F1 of each class as a line for the log; of many classes the lowest ones."""
    what, shown = lowest(scores, SHOWN_IN_A_LINE)
    parts = [f"{one.name} {one.precision:.3g}/{one.recall:.3g}/{one.f1:.3g} of {one.num_rows:,}" for one in shown]
    return f"{what} (precision/recall/f1): {', '.join(parts)}"


def class_rows(scores: Sequence[ClassScore]) -> tuple[str, list[dict[str, Any]]]:
    """Return what is shown, and a row of a table for each class; of very many classes the lowest ones."""
    what, shown = lowest(scores, SHOWN_IN_A_TABLE)
    return what, [
        {"class": one.name, "rows": one.num_rows, "predicted": one.num_predicted, "precision": one.precision,
         "recall": one.recall, "f1": one.f1}
        for one in shown
    ]  # fmt: skip


def predict(engine: Engine, state: State, batches: Iterable[Batch]) -> Iterator[HostPredictions]:
    """Return what the task predicts for each batch, on the host, in order. Holds one batch at a time."""
    return (predictions for _, predictions in _predict_placed(engine, state, ((None, batch) for batch in batches)))


def _predict_placed(
    engine: Engine, state: State, batches: Iterable[tuple[Place, Batch]]
) -> Iterator[tuple[Place, HostPredictions]]:
    for place, batch in batches:
        if SURPLUS in batch:
            with log.muted():
                engine.score(state, batch)
        else:
            predictions = engine.score(state, batch)
            yield place, engine.predictions_to_host(predictions)


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
