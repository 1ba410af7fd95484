"""What a model says of rows, as objects: labels with their probabilities, tags, numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

if TYPE_CHECKING:
    from xdpx.inference.plan import Input
    from xdpx.inference.predictor import Chunk, Predictor

LABEL, TAGS, SCORE = ("pred", "prob", "target_prob"), ("tags",), ("score",)
"""Columns of x-pred by which models are told that give labels, a tag for each word, or numbers."""
NO_ANSWER = frozenset({"vector", "origin_text", "session_text"})
"""First columns of x-pred where models give vectors, or show what they do with masked tokens: nothing is answered."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of one row.

    Attributes:
        label: the label, as the training data write it; of several, those joined by commas; of words, their tags with
            spaces between; of a question, the answer. None where the model gives a number, or makes nothing of a row.
        probabilities: of each label. Empty where the model gives none, as with tags, answers and numbers.
        labels: the same as a tuple: one label, several or none, or the tag of each word.
        score: the number, for a model that gives numbers: a regression, or a ranking.
    """

    label: str | None
    probabilities: dict[str, float]
    labels: tuple[str, ...] = ()
    score: float | None = None


NOTHING = Prediction(None, {})
"""For a row that gives no sample, such as a text that is too short for the processor."""


def answers(predictor: Predictor, source: Input) -> Iterator[list[Prediction]]:
    """Yield the predictions of some consecutive rows of an input, a `Prediction` for each row, in their order.

    Raises:
        ConfigError: the model predicts nothing of a row, such as a language model.
    """
    refuse_without_answer(predictor)
    for chunk in predictor.chunks(source):
        found: dict[int, Prediction] = {}
        if len(chunk.samples):
            said = _said(predictor, predictor.predict(chunk, alone=True), chunk)
            found = dict(zip(chunk.kept.tolist(), said, strict=True))
        yield [found.get(row, NOTHING) for row in range(chunk.num_rows)]


def refuse_without_answer(predictor: Predictor) -> None:
    """Raise ConfigError for a model that says nothing of single rows."""
    values = predictor.plan.train.values
    if predictor.plan.joins_lines or predictor.task.header()[0] in NO_ANSWER:
        problem = f"'{values['model']}' with loss '{values['loss']}' gives no label, tags or number for a text."
        remedy = "Predict with a model that was trained for that; evaluate() scores this one."
        raise ConfigError(THIS_RUN, [Fault("model", problem, remedy)])


def _said(predictor: Predictor, found: Mapping[str, Any], chunk: Chunk) -> Iterator[Prediction]:
    columns = tuple(predictor.task.header())
    if columns == SCORE:
        return (Prediction(None, {}, score=score) for score in np.asarray(found["score"]).tolist())
    if columns == LABEL:
        return _labelled(np.asarray(found["prob"]), np.asarray(found["pred"]), predictor.labels)
    cells = (row[0] for row in predictor.task.rows(found, predictor.labels))
    if columns == TAGS:
        return (Prediction(cell, {}, tuple(cell.split())) for cell in cells)
    return (Prediction(cell, {}, (cell,) if cell else ()) for cell in cells)


def _labelled(prob: Any, pred: Any, labels: Sequence[str] | None) -> Iterator[Prediction]:
    """Yield the label or labels of each row, of probabilities (N, C) and choices (N,), or of several (N, C)."""
    names = labels or [str(index) for index in range(prob.shape[1])]
    for shares, choice in zip(prob.tolist(), pred.tolist(), strict=True):
        chosen = choice if isinstance(choice, list) else [index == choice for index in range(len(names))]
        told = tuple(name for name, there in zip(names, chosen, strict=True) if there)
        yield Prediction(",".join(told), dict(zip(names, shares, strict=True)), told)
