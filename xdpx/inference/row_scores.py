"""The scores of any subset of the rows of a split, recomputed many times for bootstrap intervals.

Letters: N rows, K groups of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xdpx import metrics
from xdpx.metrics import Judged, Score
from xdpx.utils.metric_names import OF_CLASSES, SHARES, SIGNED

SAME = 1e-4
"""A mean over rows within this relative difference of a score counts as that score, in single precision."""
UNKNOWN = float("nan")


class Scoring(Protocol):
    """Computes metrics from gathered predictions; every loss of `xdpx.losses` does."""

    def scores(self, gathered: dict[str, Any]) -> dict[str, float]:
        """Return every metric, computed once over all given rows."""
        ...


class RowScores(NamedTuple):
    """How to score a subset of the rows of a split.

    Attributes:
        score: returns the scores of a subset of the N rows; NaN for a score that only all rows together have.
        num_rows: N.
        groups: group of each row (N,), whose rows are drawn together; None to draw rows independently.
        evidence: effective number of rows behind a mean over classes (`metrics.evidence_of`); None without classes.
    """

    score: Score
    num_rows: int
    groups: NDArray[np.int64] | None = None
    evidence: float | None = None


def row_scores(loss: Scoring, gathered: Mapping[str, Any], judged: Judged | None) -> RowScores | None:
    """Return how to score subsets of the rows of a split; None if rows have no score of their own (language models).

    Args:
        loss: the loss that scored the split.
        gathered: the predictions of the split.
        judged: which rows were predicted correctly; None if the loss cannot say.
    """
    if judged is None:
        return _of_queries(loss, gathered) if {"score", "target", "query_id"} <= gathered.keys() else None
    if not len(judged.right):
        return None
    if len(judged.counts):
        return of_tags(judged.counts)
    return _of_rows(loss, gathered, len(judged.right))


def intervals(found: RowScores, scores: Mapping[str, float]) -> dict[str, list[float]]:
    """Return {name: [low, high]} of the 95 % bootstrap interval of each score that depends on the rows.

    Args:
        found: how to score subsets of rows.
        scores: of all rows.
    """
    drawn = metrics.bootstrap(found.score, found.num_rows, groups_N=found.groups)
    count = found.num_rows if found.groups is None else len(np.unique(found.groups))
    ends: dict[str, list[float]] = {}
    for name, value in scores.items():
        if name not in drawn:
            continue
        low, high = _ends(name, value, drawn[name], count, found.evidence)
        if np.isfinite([low, high]).all():
            ends[name] = [low, high]
    return ends


def _ends(
    name: str, value: float, draws: NDArray[np.float64], count: int, evidence: float | None
) -> tuple[float, float]:
    """Return the interval of one score, bounded by the range that its name implies."""
    if OF_CLASSES.fullmatch(name) or SIGNED.fullmatch(name):
        of_rows = count if SHARES.fullmatch(name) or evidence is None else evidence
        return metrics.bounded_interval(value, draws, of_rows, lowest=-1.0 if SIGNED.fullmatch(name) else 0.0)
    if SHARES.fullmatch(name):
        return metrics.bounded_interval(value, draws, count)
    return metrics.percentile_interval(draws, count)


def _of_rows(loss: Scoring, gathered: Mapping[str, Any], num_rows: int) -> RowScores:
    """Return how to score rows that each have a target and a prediction."""
    arrays = {name: np.asarray(each) for name, each in gathered.items() if np.ndim(each) and len(each) == num_rows}
    others = dict.fromkeys(gathered.keys() - arrays.keys(), UNKNOWN)
    nats = _nats(loss, gathered, arrays)

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        some = {**others, **{name: each[rows] for name, each in arrays.items()}}
        if "query_id" in arrays:
            some["query_id"] = groups
        if nats is not None:
            some |= {"loss_sum": float(nats[rows].sum()), "count": float(len(rows))}
        return loss.scores(some)

    groups = np.unique(arrays["query_id"], return_inverse=True)[1] if "query_id" in arrays else None
    target = arrays.get("target")
    classes = target if target is not None and target.ndim == 1 and target.dtype.kind in "iub" else None
    evidence = None if classes is None or groups is not None else metrics.evidence_of(classes)
    return RowScores(score, num_rows, groups, evidence)


def _nats(loss: Scoring, gathered: Mapping[str, Any], arrays: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Return -log p(target) of each row in nats; None if they do not add up to the loss, which is then another."""
    if not {"prob", "target"} <= arrays.keys() or "loss_sum" not in gathered:
        return None
    prob, target = arrays["prob"].astype(np.float64), arrays["target"]
    tiny = np.finfo(np.float32).tiny
    if target.ndim == 2:
        right = np.where(target.astype(bool), prob, 1.0 - prob)
        found = -np.log(np.maximum(right, tiny)).sum(axis=1)
    else:
        right = np.take_along_axis(prob, target[:, None].astype(np.int64), axis=1)[:, 0]
        found = -np.log(np.maximum(right, tiny))
    whole = float(gathered["loss_sum"])
    return found if abs(found.sum() - whole) <= SAME * max(abs(whole), 1e-12) else None


def of_tags(counts_N5: NDArray[np.int64]) -> RowScores:
    """Return how to score texts by their entities.

    Args:
        counts_N5: `Judged.counts` of tags.
    """

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        hits, found, wanted, right, words = counts_N5[rows].sum(axis=0).tolist()
        return {
            "acc": metrics.ratio(right, words, empty=UNKNOWN),
            "precision": metrics.ratio(hits, found),
            "recall": metrics.ratio(hits, wanted),
            "f1": metrics.ratio(2 * hits, found + wanted),
        }

    return RowScores(score, len(counts_N5))


def _of_queries(loss: Scoring, gathered: Mapping[str, Any]) -> RowScores | None:
    """Return how to score subsets of queries, for the scores that are a mean over queries; None if there are none."""
    arrays = {name: np.asarray(gathered[name]) for name in ("score", "target", "query_id")}
    _, group = np.unique(arrays["query_id"], return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    each = [loss.scores({name: values[rows] for name, values in arrays.items()}) for rows in parts]
    whole = loss.scores(dict(arrays))
    table = {name: np.array([one[name] for one in each], np.float64) for name in whole}
    means = {name: values for name, values in table.items() if np.isclose(values.mean(), whole[name], rtol=SAME)}
    if not means:
        return None

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        return {name: float(values[rows].mean()) for name, values in means.items()}

    return RowScores(score, len(parts))
