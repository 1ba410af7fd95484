"""Classification metrics, for rows with one label each (from a confusion matrix) and for rows with several labels.

Letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Average = Literal["micro", "weighted", "macro", "samples", "binary"]
Counts = NDArray[np.int64]


class ClassScore(NamedTuple):
    """Scores of one class.

    Attributes:
        name: of the class.
        precision, recall, f1: of this class alone; 0 instead of a division by zero.
        num_rows: number of rows (or entities) of this class.
        num_predicted: number predicted to be of it.
    """

    name: str
    precision: float
    recall: float
    f1: float
    num_rows: int
    num_predicted: int


def confusion(target_N: NDArray[Any], pred_N: NDArray[Any], num_classes: int) -> Counts:
    """Count rows by (target, prediction), shape (C, C)."""
    cells = target_N.astype(np.int64) * num_classes + pred_N.astype(np.int64)
    return np.bincount(cells, minlength=num_classes * num_classes).reshape(num_classes, num_classes)


def accuracy(table_CC: Counts) -> float:
    """Return the share of rows whose prediction is their target; nan without rows."""
    return ratio(int(np.trace(table_CC)), int(table_CC.sum()), empty=float("nan"))


def precision_recall_f1(
    table_CC: Counts, *, average: Average, negative_classes: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Return precision, recall and F1 averaged over the classes that are not negative, as scikit-learn does.

    Args:
        table_CC: rows counted by (target, prediction).
        average: `micro` counts all classes together; `macro` takes the mean over classes; `weighted` weighs them by
            their number of targets; `binary` looks at class 1 alone; `samples` takes the mean over rows, where a row
            with a negative target and a negative prediction counts 0.
        negative_classes: left out of the average ("nothing of interest here").

    Returns:
        Precision, recall, F1; 0 where a division by zero would stand.
    """
    predicted, wanted = table_CC.sum(axis=0), table_CC.sum(axis=1)
    classes = [1] if average == "binary" else _kept(predicted + wanted, negative_classes)
    hits = table_CC.diagonal()[classes]
    if average == "samples":  # with one label each, a row scores 1 when it is right about a class that is not negative
        share = ratio(int(hits.sum()), int(table_CC.sum()))
        return share, share, share
    return _averaged(hits, predicted[classes], wanted[classes], average)


def each_class(hits: Counts, predicted: Counts, wanted: Counts, names: Sequence[str] | None) -> list[ClassScore]:
    """Return the scores of each class.

    Args:
        hits: rows of each class predicted to be of it (true positives), (C,).
        predicted: all rows predicted to be of it.
        wanted: all rows of it.
        names: of the classes; if unknown, their numbers are used.
    """
    if names is None or len(names) != len(hits):
        names = [str(index) for index in range(len(hits))]
    scores = zip(_divide(hits, predicted), _divide(hits, wanted), _divide(2 * hits, predicted + wanted), strict=True)
    return [
        ClassScore(name, float(precision), float(recall), float(f1), rows, found)
        for name, (precision, recall, f1), rows, found in zip(
            names, scores, wanted.tolist(), predicted.tolist(), strict=True
        )
    ]


def _averaged(hits: Counts, predicted: Counts, wanted: Counts, average: Average) -> tuple[float, float, float]:
    if average == "micro":
        hits, predicted, wanted = (counts.sum(keepdims=True) for counts in (hits, predicted, wanted))
    # One division of all three, and no more calls than needed: the bootstrap comes here a thousand times.
    scores = _divide(np.array([hits, hits, 2 * hits]), np.array([predicted, wanted, predicted + wanted]))
    weights = wanted if average == "weighted" else np.ones_like(wanted)
    total = int(weights.sum())
    precision, recall, f1 = (scores @ weights / total).tolist() if total else (0.0, 0.0, 0.0)
    return precision, recall, f1


def ratio(part: float, whole: float, *, empty: float = 0.0) -> float:
    """Return part / whole, or `empty` if whole is 0."""
    return part / whole if whole else empty


def matthews(table_CC: Counts) -> float:
    """Return the correlation of targets and predictions, in [-1, 1]; 0 where one is constant, nan without rows.

    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004, section 2.
    """
    total = float(table_CC.sum())
    if not total:
        return float("nan")
    wanted, predicted = table_CC.sum(axis=1) / total, table_CC.sum(axis=0) / total
    covariance = np.trace(table_CC) / total - wanted @ predicted
    spread = (1.0 - wanted @ wanted) * (1.0 - predicted @ predicted)
    return ratio(float(covariance), float(np.sqrt(spread)))


def kappa(table_CC: Counts) -> float:
    """Return Cohen's kappa, at most 1; nan without rows, or if agreement by chance is 1.

    Source: Cohen, "A coefficient of agreement for nominal scales", 1960.
    """
    total = float(table_CC.sum())
    if not total:
        return float("nan")
    by_chance = float(table_CC.sum(axis=1) @ table_CC.sum(axis=0)) / total**2
    return ratio(accuracy(table_CC) - by_chance, 1.0 - by_chance, empty=float("nan"))


def balanced_accuracy(table_CC: Counts) -> float:
    """Return the mean recall over the classes that occur as target; nan without rows."""
    wanted = table_CC.sum(axis=1)
    present = wanted > 0
    return float(np.mean(np.diag(table_CC)[present] / wanted[present])) if present.any() else float("nan")


def top_accuracy(prob_NC: NDArray[Any], target_N: NDArray[Any], most: int) -> float:
    """Return top-k accuracy with k = `most`; classes with the same probability as the target rank before it.

    nan without rows; a row with a nan counts as wrong.
    """
    if not len(target_N):
        return float("nan")
    own = np.take_along_axis(prob_NC, target_N[:, None].astype(np.int64), axis=1)
    not_below = (~(prob_NC < own)).sum(axis=1)  # the target itself is one of them
    return float(np.mean(not_below <= most))


def several_labels(
    target_NC: NDArray[Any], pred_NC: NDArray[Any], *, average: Average, negative_classes: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Return averaged precision, recall and F1 of rows with several labels or none, as scikit-learn does.

    Args:
        target_NC: bool, the labels of each row.
        pred_NC: bool, the predicted labels.
        average: as for `precision_recall_f1`; `samples` takes the mean over rows.
        negative_classes: left out.

    Returns:
        Precision, recall, F1; 0 where a division by zero would stand.
    """
    kept = [1] if average == "binary" else [each for each in range(target_NC.shape[1]) if each not in negative_classes]
    target, pred = target_NC[:, kept].astype(bool), pred_NC[:, kept].astype(bool)
    axis = 1 if average == "samples" else 0
    hits, predicted, wanted = (each.sum(axis=axis) for each in (target & pred, pred, target))
    return _averaged(hits, predicted, wanted, average)


def _kept(count_C: Counts, negative_classes: Iterable[int]) -> NDArray[np.int64]:
    """Return the classes that occur as target or prediction and are not negative (absent classes are not classes)."""
    left_out = set(negative_classes)
    present: NDArray[np.int64] = count_C.nonzero()[0]
    return np.array([each for each in present.tolist() if each not in left_out], np.int64) if left_out else present


def _divide(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    quotient: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0)
    return quotient
