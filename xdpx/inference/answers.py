"""The predictions of a model for rows, as objects: labels with their probabilities, tags, numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xdpx.config.faults import refusal
from xdpx.metrics.judging import LABEL_COLUMNS, NUMBER_COLUMNS, TAG_COLUMNS
from xdpx.processors.samples import Samples, concatenate
from xdpx.tokenizers.target_map import number_of

if TYPE_CHECKING:
    from xdpx.inference.plan import Input
    from xdpx.inference.predictor import Predictor

NO_ANSWER = frozenset({"vector", "origin_text", "session_text"})
"""First columns of x-pred for models that give vectors or fill in masked tokens: these have no `Prediction` per row."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of a model for one row.

    Attributes:
        label: the label as it stands in the training data; several labels joined by commas; the tags of the words
            joined by spaces; the answer to a question. None if the model gives a number, or the row gives no sample.
        probabilities: of each label. Empty where the model gives none, as with tags, answers and numbers.
        labels: the same as a tuple: one label, several or none, or the tag of each word.
        score: the number that a regression or ranking model gives.
    """

    label: str | None
    probabilities: dict[str, float]
    labels: tuple[str, ...] = ()
    score: float | None = None


NOTHING = Prediction(None, {})
"""The prediction for a row that gives no sample, such as a text that is too short for the processor."""


class EncodedRow(NamedTuple):
    """A row whose texts are encoded as token ids, ready to be computed in a batch with others.

    Attributes:
        samples: of all rows that were encoded together with it.
        places: indices of its own samples in `samples`: one, several windows of a long text, or none.
        length: of its longest sample, in tokens; 0 if it has none.
    """

    samples: Samples
    places: range
    length: int


def encoded(predictor: Predictor, source: Input) -> list[EncodedRow]:
    """Return the encoded rows of an input, in input order."""
    rows = []
    for chunk in predictor.chunks(source):
        ends = np.searchsorted(chunk.kept, np.arange(chunk.num_rows + 1)).tolist()
        lengths = chunk.samples.lengths.tolist()
        rows += [
            EncodedRow(chunk.samples, range(first, last), max(lengths[first:last], default=0))
            for first, last in pairwise(ends)
        ]
    return rows


def answers(predictor: Predictor, rows: Sequence[EncodedRow], *, batch_size: int) -> list[Prediction]:
    """Return the prediction of each row, in the same order.

    Args:
        predictor: the one that encoded the rows.
        rows: from one or several calls of `encoded`.
        batch_size: samples per batch; samples of similar length are batched together.

    Raises:
        ConfigError: the model predicts nothing for single rows, e.g. a language model.
    """
    refuse_without_answer(predictor)
    kept = [row for row in rows if row.places]
    if not kept:
        return [NOTHING] * len(rows)
    parts = []
    for samples, together in groupby(kept, key=lambda row: row.samples):
        parts.append(samples.take(np.concatenate([np.arange(row.places.start, row.places.stop) for row in together])))
    # Renumbered: ids mark the windows of one text, and rows from different calls may share ids.
    samples = Samples(concatenate(parts).columns)
    said = iter(_said(predictor, predictor.predict_samples(samples, batch_size=batch_size)))
    return [[*islice(said, len(row.places))][-1] if row.places else NOTHING for row in rows]


def refuse_without_answer(predictor: Predictor) -> None:
    """Raise ConfigError for a model that predicts nothing for single rows."""
    values = predictor.plan.train.values
    if predictor.plan.joins_lines or predictor.columns[0] in NO_ANSWER:
        problem = f"'{values['model']}' with loss '{values['loss']}' predicts no label, tags or number for a text."
        remedy = "Predict with a model that was trained for that; evaluate() scores this one."
        raise refusal("model", problem, remedy)


def _said(predictor: Predictor, found: Mapping[str, Any]) -> Iterator[Prediction]:
    columns = predictor.columns
    if columns == NUMBER_COLUMNS:
        written = (row[0] for row in predictor.task.rows(found, predictor.labels))
        return _scored(np.asarray(found["score"]).tolist(), written)
    if columns == LABEL_COLUMNS:
        told = _labelled(np.asarray(found["prob"]), np.asarray(found["pred"]), predictor.labels)
        own = predictor.own_rows(found)
        if own is None:
            return told
        return (replace(one, label=label, labels=(label,)) for one, (label, *_) in zip(told, own, strict=True))
    cells = (row[0] for row in predictor.task.rows(found, predictor.labels))
    if columns == TAG_COLUMNS:
        return (Prediction(cell, {}, tuple(cell.split())) for cell in cells)
    return (Prediction(cell, {}, (cell,) if cell else ()) for cell in cells)


def _scored(scores: Iterable[float], written: Iterable[str]) -> Iterator[Prediction]:
    """Yield the prediction per row of a loss that predicts a number.

    Args:
        scores: what the model gives.
        written: what x-pred writes: the same, rounded, unless a user's loss writes something else, which then counts.
    """
    for score, cell in zip(scores, written, strict=True):
        own = score if cell == f"{score:.6g}" else number_of(cell)
        yield Prediction(None, {}, score=own) if own is not None else Prediction(cell, {}, (cell,), score=score)


def _labelled(prob: Any, pred: Any, labels: Sequence[str] | None) -> Iterator[Prediction]:
    """Yield the prediction per row from probabilities (N, C) and classes (N,), or booleans (N, C) if multi-label."""
    names = labels or [str(index) for index in range(prob.shape[1])]
    for shares, choice in zip(prob.tolist(), pred.tolist(), strict=True):
        chosen = choice if isinstance(choice, list) else [index == choice for index in range(len(names))]
        told = tuple(name for name, there in zip(names, chosen, strict=True) if there)
        yield Prediction(",".join(told), dict(zip(names, shares, strict=True)), told)
