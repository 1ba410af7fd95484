"""The scores of any rows of a split: what is asked again and again to tell how far they are chance.

Letters: N rows, K groups of rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xdpx import metrics
from xdpx.metrics import Judged, Score

SAME = 1e-4
"""A mean over rows that differs by no more than this share from a score is that score, in single precision."""
UNKNOWN = float("nan")
SIGNED = re.compile(r"(.*_)?(mcc|kappa|pearson|spearman)")
"""Scores between -1 and 1."""
SHARES = re.compile(r"(.*_)?(acc|em|mrr|ndcg|hit|(micro|weighted|samples)_(precision|recall|f1))(@\d+)?")
"""Scores between 0 and 1 to which every row adds as much."""
OF_CLASSES = re.compile(r"(.*_)?(precision|recall|f1|auc|average_precision|balanced_acc)(_.*)?")
"""Scores between 0 and 1 in which a class of few rows counts as much as one of many."""


class Scoring(Protocol):
    """What scores gathered predictions: every loss of `xdpx.losses` is one."""

    def scores(self, gathered: dict[str, Any]) -> dict[str, float]:
        """Compute every metric once, over all rows that are given."""
        ...


class RowScores(NamedTuple):
    """How some rows of a split score.

    Attributes:
        score: returns the scores of some of N rows; nan where only all rows together have one.
        num_rows: N.
        groups: which rows are drawn together, (N,); None for each by itself.
        evidence: of how many rows a mean over classes is worth (`metrics.evidence_of`); None where rows have no class.
    """

    score: Score
    num_rows: int
    groups: NDArray[np.int64] | None = None
    evidence: float | None = None


def row_scores(loss: Scoring, gathered: Mapping[str, Any], judged: Judged | None) -> RowScores | None:
    """Return how some rows of a split score; None where rows have no score by themselves, as in language models.

    Args:
        loss: that scored the split.
        gathered: its predictions.
        judged: how each row was predicted.
    """
    if judged is None:
        return _of_queries(loss, gathered) if {"score", "target", "query_id"} <= gathered.keys() else None
    if not len(judged.right):
        return None
    if judged.kind == "tags":
        return of_tags(judged)
    return _of_rows(loss, gathered, len(judged.right))


def intervals(found: RowScores, scores: Mapping[str, float]) -> dict[str, list[float]]:
    """Return {name: ends of its 95 % interval} of those scores that rows decide.

    Args:
        found: how rows score.
        scores: of all of them.
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
    """Return the ends of the interval of one score, on the scale that its name tells."""
    if OF_CLASSES.fullmatch(name) or SIGNED.fullmatch(name):
        of_rows = count if SHARES.fullmatch(name) or evidence is None else evidence
        return metrics.bounded_interval(value, draws, of_rows, lowest=-1.0 if SIGNED.fullmatch(name) else 0.0)
    if SHARES.fullmatch(name):
        return metrics.bounded_interval(value, draws, count)
    return metrics.percentile_interval(draws, count)


def _of_rows(loss: Scoring, gathered: Mapping[str, Any], num_rows: int) -> RowScores:
    """Return how rows score of which each has its own target and prediction."""
    arrays = {name: each for name, value in gathered.items() if len(each := np.atleast_1d(value)) == num_rows > 1}
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
    """Return the surprise at the target of each row; None where they do not add up to the loss, which is another."""
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


def of_tags(judged: Judged) -> RowScores:
    """Return how texts score whose entities are counted."""
    columns = []
    for row in range(len(judged.right)):
        said = judged.describe(row)
        target, pred = said["true"].split(), said["predicted"].split()
        wanted, found = set(metrics.entities(target)), set(metrics.entities(pred))
        words = sum(one == other for one, other in zip(target, pred, strict=True))
        columns.append((len(wanted & found), len(found), len(wanted), words, len(target)))
    counts = np.array(columns, np.float64)

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        hits, found, wanted, right, words = counts[rows].sum(axis=0).tolist()
        return {
            "acc": metrics.ratio(right, words, empty=UNKNOWN),
            "precision": metrics.ratio(hits, found),
            "recall": metrics.ratio(hits, wanted),
            "f1": metrics.ratio(2 * hits, found + wanted),
        }

    return RowScores(score, len(counts))


def _of_queries(loss: Scoring, gathered: Mapping[str, Any]) -> RowScores | None:
    """Return how queries score, as far as a score is the mean of those of each query."""
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
