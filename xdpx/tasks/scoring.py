"""Evaluate or predict a whole split, batch by batch, without gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal, wrong_return
from xdpx.datasets.evaluation_data import SURPLUS
from xdpx.engines.base import Batch, Engine, State
from xdpx.logger import log
from xdpx.metrics.classes import ClassScore
from xdpx.metrics.named import TO_ORDER, misread
from xdpx.utils.distributed_utils import by_the_first, collected

Place = TypeVar("Place")

SHOWN_IN_A_LINE = 12
SHOWN_IN_A_TABLE = 100
"""With more classes than this, only half this number are shown, those with the lowest F1."""

HostPredictions = Mapping[str, NDArray[Any] | float]
"""Predictions of one batch on the host: arrays with a row per sample, and scalars to be summed over batches."""


class Scores(NamedTuple):
    """Scores of a split.

    Attributes:
        metrics: each computed once over the whole split.
        each_class: precision, recall and F1 of each class; empty if the task is not classification.
    """

    metrics: dict[str, float]
    each_class: list[ClassScore]


class Metrics(Protocol):
    """Computes metrics from gathered predictions; every loss of `xdpx.losses` does."""

    @property
    def average(self) -> str | None:
        """How classes are averaged in precision, recall and F1; None if they are not averaged."""
        ...

    def keys_by_class(self) -> list[str]:
        """Return the keys that are set and whose values go by the numbers of the classes."""
        ...

    def about_one_class(self, names: Iterable[str], num_classes: int) -> dict[str, int]:
        """Return {metric: number of the class} of those that would be others if classes were numbered otherwise."""
        ...

    def refuse_grades(self, names: Iterable[str], labels: Sequence[str]) -> None:
        """Raise ConfigError if a metric of these names takes classes for grades that contradict the labels."""
        ...

    def scores(self, gathered: dict[str, Any]) -> dict[str, float]:
        """Return every metric of a whole split, including those that the config asks for by name."""
        ...

    def each_class(self, gathered: dict[str, Any], labels: Sequence[str] | None) -> list[ClassScore]:
        """Return precision, recall and F1 of each class; an empty list if the task is not classification."""
        ...


def evaluate(engine: Engine, state: State, batches: Iterable[Batch], loss: Metrics) -> dict[str, float]:
    """Return the metrics of a split, each computed once over all of it, so that batch sizes do not matter.

    Raises:
        ValueError: the split is empty.
    """
    return score(engine, state, batches, loss).metrics


def score(
    engine: Engine, state: State, batches: Iterable[Batch], loss: Metrics, *, labels: Sequence[str] | None = None
) -> Scores:
    """Return the metrics of a split, overall and for each class; on all processes.

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
    """Return (scores, gathered predictions, place of each batch), the latter two empty except on the first process.

    Args:
        engine: predicts.
        state: of the engine.
        batches: of this process, each with its place: any value that tells the caller where its rows come from.
        loss: computes the metrics.
        labels: names of the classes.

    Raises:
        ValueError: the split is empty.
    """
    with log.scoring():
        found = collected(_predict_placed(engine, state, batches))
    gathered = gather(predictions for _, predictions in found)
    return by_the_first(lambda: _scores(gathered, loss, labels)), gathered, [place for place, _ in found]


def _scores(gathered: dict[str, Any], loss: Metrics, labels: Sequence[str] | None) -> Scores:
    if not gathered:
        raise ValueError("there is no sample to score: the split is empty.")
    # Plain floats: numpy's own would be written into checkpoints, and could not be read back safely.
    found = {str(name): _as_float(name, value) for name, value in loss.scores(gathered).items()}
    tell_of_classes(found, loss, labels or [])
    each_class: Any = loss.each_class(gathered, labels)
    if not isinstance(each_class, list):
        remedy = "Return a list of ClassScore, [] if nothing is classified."
        raise wrong_return("loss", loss, "each_class", f"{each_class!r:.60}", remedy)
    return Scores(found, each_class)


def tell_of_classes(names: Iterable[str], loss: Metrics, labels: Sequence[str]) -> None:
    """Log the labels that numbers of classes stand for: classes are sorted by frequency unless a config orders them.

    A warning if a number reads as the label of another class.

    Args:
        names: of metrics, of which some may be about one class.
        loss: says which, and which keys go by class.
        labels: names of the classes; if there are none, nothing is logged.

    Raises:
        ConfigError: a metric takes classes for grades, but the labels are other numbers.
    """
    names = list(names)
    loss.refuse_grades(names, labels)
    misleading = misread(labels)
    if labels and (keys := loss.keys_by_class()):
        shown = ", ".join(f"{number} is '{label}'" for number, label in enumerate(labels[:SHOWN_IN_A_LINE]))
        more = f", and so on to {len(labels) - 1}" if len(labels) > SHOWN_IN_A_LINE else ""
        line = f"{', '.join(keys)}: by the numbers of the classes: {shown}{more} ({TO_ORDER})"
        (log.warning if misleading else log.info)(line, once=True)
    numbers = loss.about_one_class(names, len(labels))
    for number in sorted({*numbers.values()} & {*range(len(labels))}):
        told = [name for name, its in numbers.items() if its == number]
        other = f"'{labels[1 - number]}' is class {1 - number}; " if len(labels) == 2 else ""
        line = f"{', '.join(told)}: about the label '{labels[number]}', which is class {number} ({other}{TO_ORDER})"
        (log.warning if number in misleading else log.info)(line, once=True)


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        problem = f"gives the metric '{name}' as {type(value).__name__}, not a number."
        raise refusal("loss", problem, "Return {name: number} from its metrics.") from error


def lowest(scores: Sequence[ClassScore], most: int) -> tuple[str, list[ClassScore]]:
    """Return (description, classes): all classes, or if more than `most`, the `most` // 2 with the lowest F1."""
    if len(scores) <= most:
        return "each class", list(scores)
    few = most // 2
    return f"the lowest {few} of {len(scores):,} classes", sorted(scores, key=lambda one: one.f1)[:few]


def in_one_line(scores: Sequence[ClassScore]) -> str:
    """Return precision, recall and F1 of each class as a line for the log; of many classes, only the lowest."""
    what, shown = lowest(scores, SHOWN_IN_A_LINE)
    parts = [f"{one.name} {one.precision:.3g}/{one.recall:.3g}/{one.f1:.3g} of {one.num_rows:,}" for one in shown]
    return f"{what} (precision/recall/f1): {', '.join(parts)}"


def class_rows(scores: Sequence[ClassScore]) -> tuple[str, list[dict[str, Any]]]:
    """Return (description, table rows), one row per class; of very many classes, only the lowest."""
    what, shown = lowest(scores, SHOWN_IN_A_TABLE)
    return what, [
        {"class": one.name, "rows": one.num_rows, "predicted": one.num_predicted, "precision": one.precision,
         "recall": one.recall, "f1": one.f1}
        for one in shown
    ]  # fmt: skip


def predict(engine: Engine, state: State, batches: Iterable[Batch]) -> Iterator[HostPredictions]:
    """Yield the predictions for each batch, on the host, in order. Holds one batch at a time."""
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
    """Join the predictions of many batches: rows are concatenated, scalars summed in double precision.

    Raises:
        ConfigError: a user's `predictions` gives rows for some batches only, or neither arrays nor numbers.
    """
    parts: dict[str, list[Any]] = {}
    count = 0
    for prediction in predictions:
        count += 1
        for name, value in prediction.items():
            parts.setdefault(name, []).append(value)
    return {name: _join(name, values, count) for name, values in parts.items()}


def _join(name: str, values: list[Any], count: int) -> Any:
    rows = sum(np.ndim(value) > 0 for value in values if isinstance(value, np.ndarray))
    try:
        if rows == count:
            return np.concatenate(values)
        odd = next((value for value in values if not isinstance(value, Real | np.ndarray)), None)
        if not rows and odd is None:
            return float(np.sum(values, dtype=np.float64))
        found = f"for {rows} of {count} batches as rows" if odd is None else f"as {type(odd).__name__}"
    except ValueError as error:  # other widths in other batches
        found = f"in shapes that do not fit ({error})"
    problem = f"gives '{name}' in its predictions {found}."
    remedy = "Return for every batch a tensor with a row per sample, or one number to be summed."
    raise refusal("loss", problem, remedy)
