"""Metrics of classification, computed once from the predictions of a whole split.

Everything but the area under the curve comes from one table of counts, so ten million rows take well under a second.
Letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.losses.parameters import Average

Counts = NDArray[np.int64]


def confusion(target_N: NDArray[Any], pred_N: NDArray[Any], num_classes: int) -> Counts:
    """Count rows by (target, prediction), shape (C, C)."""
    cells = target_N.astype(np.int64) * num_classes + pred_N.astype(np.int64)
    return np.bincount(cells, minlength=num_classes * num_classes).reshape(num_classes, num_classes)


def accuracy(table_CC: Counts) -> float:
    """Give the share of rows whose prediction is their target; nan without rows."""
    return ratio(int(np.trace(table_CC)), int(table_CC.sum()), empty=float("nan"))


def precision_recall_f1(
    table_CC: Counts, *, average: Average, negative_classes: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Average precision, recall and F1 over the classes that are not negative, as scikit-learn does.

    Args:
        table_CC: rows counted by (target, prediction).
        average: `micro` counts all classes together; `macro` takes the mean over classes; `weighted` weighs them by
            their number of targets; `binary` looks at class 1 alone; `samples` takes the mean over rows, where a row
            with a negative target and a negative prediction counts 0.
        negative_classes: left out of the average ("nothing of interest here").

    Returns:
        Precision, recall, F1; 0 where a division by zero would stand.
    """
    if average == "samples":
        return _per_row(table_CC, negative_classes)
    classes = [1] if average == "binary" else _kept(table_CC, negative_classes)
    hits = np.diag(table_CC)[classes]
    predicted, wanted = table_CC.sum(axis=0)[classes], table_CC.sum(axis=1)[classes]
    if average == "micro":
        hits, predicted, wanted = (counts.sum(keepdims=True) for counts in (hits, predicted, wanted))
    scores = np.stack([_divide(hits, predicted), _divide(hits, wanted), _divide(2 * hits, predicted + wanted)])
    weights = wanted if average == "weighted" else np.ones_like(wanted)
    mean = _divide(scores @ weights, np.full(3, weights.sum()))
    return float(mean[0]), float(mean[1]), float(mean[2])


def area_under_curve(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Give the probability that a positive row (target 1) scores above a negative one, ties counting half.

    Returns:
        A value in [0, 1]; nan when one of the two classes is absent or a score is nan.

    Source: Mann and Whitney (1947): the area is the rank sum of the positives, shifted and scaled.
    """
    positive = target_N == 1
    num_positive = int(positive.sum())
    num_negative = len(target_N) - num_positive
    if not num_positive or not num_negative or np.isnan(score_N).any():
        return float("nan")
    _, place, count = np.unique(score_N, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(count) - (count - 1) / 2.0
    rank_sum = float(middle_rank[place[positive]].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2.0) / (num_positive * num_negative)


def best_row_per_query(query_N: NDArray[Any], score_N: NDArray[Any]) -> NDArray[np.int64]:
    """Give the index of the highest scoring row of each query, in the order of the queries' names or numbers."""
    order = np.lexsort((-score_N, query_N))
    ordered = query_N[order]
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order[first]


def ratio(part: float, whole: float, *, empty: float = 0.0) -> float:
    """Divide, giving `empty` for a whole of 0."""
    return part / whole if whole else empty


def _kept(table_CC: Counts, negative_classes: Iterable[int]) -> list[int]:
    """Give the classes that occur as target or prediction and are not negative (absent classes are no classes)."""
    present = np.flatnonzero(table_CC.sum(axis=0) + table_CC.sum(axis=1))
    return [int(index) for index in present if index not in set(negative_classes)]


def _divide(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    quotient: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)
    return quotient


def _per_row(table_CC: Counts, negative_classes: Sequence[int]) -> tuple[float, float, float]:
    """Average over rows: with one label each, a row scores 1 when it is right about a class that is not negative."""
    hits = int(np.diag(table_CC)[_kept(table_CC, negative_classes)].sum())
    share = ratio(hits, int(table_CC.sum()))
    return share, share, share
