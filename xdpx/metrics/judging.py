"""Assess each row of a split: is it right, how wrong is it; and scores by length of the texts.

Letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import eq
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.intervals import mean_interval, share_interval
from xdpx.metrics.spans import entity_pairs

Kind = Literal["class", "several", "tags", "number"]
"""What is predicted for a row: a class, several labels, a tag for each word, a number."""

LABEL_COLUMNS, TAG_COLUMNS, NUMBER_COLUMNS = ("pred", "prob", "target_prob"), ("tags",), ("score",)
"""Columns that x-pred writes; they show whether a model predicts labels, a tag for each word, or numbers."""

BINS = 5
"""Number of groups by length, of about equal numbers of rows."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


NO_COUNTS = np.empty((0, 5), np.int64)


class Judged(NamedTuple):
    """How each row of a split was predicted. N is the number of rows; of tags, that of whole texts.

    Attributes:
        kind: what is predicted.
        places: index of each row in the gathered predictions, (N,).
        right: which rows are predicted right in every respect, (N,); of numbers none is.
        badness: by which the worst ones come first, (N,): the probability that the wrong answer got, in [0, 1]; of tags
            how many entities are wrong; of numbers the size of the error.
        describe: returns in plain values what was wanted and predicted for one of them.
        counts: of tags, how many entities of each text are right, predicted, and in the targets; and how many tags are
            right, and there are, (N, 5).
    """

    kind: Kind
    places: NDArray[np.int64]
    right: NDArray[np.bool_]
    badness: NDArray[np.float64]
    describe: Callable[[int], dict[str, Any]]
    counts: NDArray[np.int64] = NO_COUNTS

    def worst(self, most: int) -> NDArray[np.int64]:
        """Return the wrong rows with the largest badness, the worst first; NaN and infinity come before all."""
        wrong = np.flatnonzero(~self.right)
        badness = np.where(np.isfinite(self.badness[wrong]), self.badness[wrong], np.inf)
        return wrong[np.argsort(-badness, kind="stable")[:most]]


def judge_classes(
    target_N: NDArray[Any], pred_N: NDArray[Any], prob_NC: NDArray[Any], labels: Sequence[str] | None
) -> Judged:
    """Judge rows with one label each."""
    names = _names(labels, prob_NC.shape[1])
    rows = np.arange(len(target_N))
    target, pred = target_N.astype(np.int64), pred_N.astype(np.int64)

    def describe(row: int) -> dict[str, Any]:
        wanted, found = int(target[row]), int(pred[row])
        return {
            "true": names[wanted],
            "predicted": names[found],
            "probability": float(prob_NC[row, found]),
            "probability_of_true": float(prob_NC[row, wanted]),
        }

    return Judged("class", rows, target == pred, prob_NC[rows, pred].astype(np.float64), describe)


def judge_several(
    target_NC: NDArray[Any], pred_NC: NDArray[Any], prob_NC: NDArray[Any], labels: Sequence[str] | None
) -> Judged:
    """Judge rows that may have several labels; a row is right if exactly its labels are predicted."""
    names = _names(labels, prob_NC.shape[1])
    target, pred = target_NC.astype(bool), pred_NC.astype(bool)
    wrong = target != pred
    for_wrong = np.where(wrong, np.where(target, 1.0 - prob_NC, prob_NC), 0.0).max(axis=1, initial=0.0)

    def describe(row: int) -> dict[str, Any]:
        return {
            "true": [names[index] for index in np.flatnonzero(target[row]).tolist()],
            "predicted": [names[index] for index in np.flatnonzero(pred[row]).tolist()],
            "probability": float(for_wrong[row]),
            "probabilities": {
                names[index]: float(prob_NC[row, index]) for index in np.flatnonzero(wrong[row]).tolist()
            },
        }

    return Judged("several", np.arange(len(target)), ~wrong.any(axis=1), for_wrong.astype(np.float64), describe)


def judge_tags(
    targets: Sequence[Sequence[str]],
    preds: Sequence[Sequence[str]],
    places_N: NDArray[np.int64],
    known: Iterable[str] | None = None,
) -> Judged:
    """Judge texts by the entities that their tags mark; a text is right if every tag is.

    Args:
        targets: tags of each text.
        preds: the predicted tags.
        places_N: index of each text (of its first window) in the gathered predictions.
        known: all tags that there are; by default those of `targets` and `preds`.
    """
    pairs = list(entity_pairs(targets, preds, known))
    same = [sum(map(eq, target, pred)) for target, pred in zip(targets, preds, strict=True)]
    columns = [
        (len(there & found), len(found), len(there), right, len(target))
        for (there, found), right, target in zip(pairs, same, targets, strict=True)
    ]
    counts = np.array(columns, np.int64).reshape(-1, 5)
    hits, predicted, wanted, right, words = counts.T

    def describe(row: int) -> dict[str, Any]:
        there, found = pairs[row]
        return {
            "true": " ".join(targets[row]),
            "predicted": " ".join(preds[row]),
            "missed": [entity._asdict() for entity in sorted(there - found, key=lambda one: one.start)],
            "false": [entity._asdict() for entity in sorted(found - there, key=lambda one: one.start)],
        }

    badness = (predicted + wanted - 2 * hits).astype(np.float64)
    return Judged("tags", places_N, right == words, badness, describe, counts)


def judge_numbers(target_N: NDArray[Any], score_N: NDArray[Any]) -> Judged:
    """Judge numbers by their absolute error."""
    target, score = target_N.astype(np.float64), score_N.astype(np.float64)
    error = score - target

    def describe(row: int) -> dict[str, Any]:
        return {"true": float(target[row]), "predicted": float(score[row]), "error": float(error[row])}

    return Judged("number", np.arange(len(error)), np.zeros(len(error), np.bool_), np.abs(error), describe)


def by_length(judged: Judged, length_N: NDArray[Any], *, bins: int = BINS) -> list[dict[str, Any]]:
    """Return scores by length, in groups of about equal numbers of rows, from the shortest texts to the longest.

    Args:
        judged: of N rows.
        length_N: tokens of each.
        bins: maximum number of groups; texts of the same length are in the same group.

    Returns:
        For each group: `from` and `to` (tokens), `rows`, `score` (the share that is right; of numbers the mean size of
        the error) and its 95 % interval.
    """
    if not len(length_N):
        return []
    edges = np.unique(np.quantile(length_N, np.arange(1, bins + 1) / bins, method="inverted_cdf"))
    group = np.searchsorted(edges, length_N)
    found = []
    for index in range(len(edges)):
        rows = group == index
        if not rows.any():
            continue
        if judged.kind == "number":
            values = judged.badness[rows]
            score, interval = float(values.mean()), mean_interval(values)
        else:
            score = float(judged.right[rows].mean())
            interval = share_interval(score, int(rows.sum()))
        first, last = int(length_N[rows].min()), int(length_N[rows].max())
        found.append({"from": first, "to": last, "rows": int(rows.sum()), "score": score, "interval": [*interval]})
    return found


def error_quantiles(error_N: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return the 5 %, 25 %, 50 %, 75 %, 95 % and 100 % quantiles of the finite errors."""
    finite = error_N[np.isfinite(error_N)]
    if not len(finite):
        return []
    values = np.quantile(finite, QUANTILES).tolist()
    return [{"share": share, "error": value} for share, value in zip(QUANTILES, values, strict=True)]


def _names(labels: Sequence[str] | None, count: int) -> Sequence[str]:
    """Return the names of the classes; if unknown, their numbers."""
    return labels if labels is not None and len(labels) == count else [str(index) for index in range(count)]
