"""Metrics that a config asks for by name, whatever loss is trained: each says what it needs of the predictions.

`metrics: [mcc, top3_acc]` adds columns to the evaluation log; `major_metric` may be any of these names, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics import classes, ranking, regression, thresholds
from xdpx.metrics.classes import Average

Predictions = Mapping[str, Any]
"""Predictions of a split: `target` and `pred` (N,) or bool (N, C), `prob` (N, C), `score` (N,), `query_id` (N,).

Predictions without `prob` may give `num_classes` in its place, for metrics that only need C.
"""

Condition = tuple[str, str, object] | None

OF_ONE_LABEL: Mapping[str, Condition] = dict.fromkeys(("mcc", "kappa", "balanced_acc", "top*_acc"))
AVERAGES: tuple[Average, ...] = ("micro", "macro", "weighted", "samples")
PARTS = ("precision", "recall", "f1")
OF_CLASSES: Mapping[str, Condition] = dict.fromkeys(
    (*(f"{average}_{part}" for average in AVERAGES for part in PARTS), "f1_*", "macro_auc", "macro_average_precision")
)
"""For rows with one label as well as for rows with several."""
OF_QUERIES: Mapping[str, Condition] = dict.fromkeys(("mrr", "ndcg", "ndcg@*", "hit@*"))
OF_CUTS: Mapping[str, Condition] = dict.fromkeys(("best_f1", "best_threshold"))
OF_TWO_CLASSES: Mapping[str, Condition] = {"average_precision": ("num_classes", "is", 2)}
OF_SCORES: Mapping[str, Condition] = dict.fromkeys(("pearson", "spearman", "mse", "mae"))
OF_TOKENS: Mapping[str, Condition] = dict.fromkeys(("ppl",))
CLASSIFICATION: Mapping[str, Condition] = {
    **OF_ONE_LABEL, **OF_CLASSES, **OF_CUTS, **OF_TWO_CLASSES, **OF_QUERIES,
}  # fmt: skip
"""Names for `metric_names` of a loss that predicts one class per row."""


OF_GRADES = re.compile(r"mrr|ndcg(@\d+)?|hit@\d+")
"""Metrics of queries: they read how relevant a row is from its label."""
OF_CUT = ("best_f1", "best_threshold", "threshold")
"""Metrics of two classes that would be others if these were exchanged."""
OF_A_CLASS = re.compile(r"f1_(\d+)")

TO_ORDER = "special_targets, target_map_file or target_type: index of x-prepro would order them"
"""How the numbers of classes are chosen: by default the most frequent label is class 0."""


class Missing(ValueError):
    """The predictions lack what a metric needs; the message names it."""


def compute(
    name: str,
    predictions: Predictions,
    *,
    negative_classes: Sequence[int] = (),
    label_values: Sequence[float] | None = None,
) -> float | None:
    """Return the metric of this name, None if there is none.

    Args:
        name: of the metric.
        predictions: of the split.
        negative_classes: left out of averages.
        label_values: as for `ranked`.

    Raises:
        Missing: the predictions lack what it needs.
    """
    for pattern, find in TABLE:
        match = pattern.fullmatch(name)
        if match is not None:
            number = int(match[1]) if pattern.groups else 0
            return find(_Found(name, predictions, tuple(negative_classes), number, label_values))
    return None


def ranked(
    prob_NC: NDArray[Any], target_N: NDArray[Any], label_values: Sequence[float] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how relevant each row is, and by which score it is ranked, if grades are predicted as classes.

    The score is the expected grade above the lowest one. Of two classes it has the order of the probability of the
    higher grade.

    Args:
        prob_NC: the probability of each class.
        target_N: the class of each row.
        label_values: the grade of each class; None if that is the number of the class.

    Returns:
        (grade (N,), score (N,)).

    Source: Li, Burges and Wu, "McRank: Learning to Rank Using Multiple Classification and Gradient Boosting", NIPS
    2007, section 4.
    """
    values = np.arange(prob_NC.shape[1], dtype=np.float64) if label_values is None else np.array(label_values)
    return values[target_N.astype(np.int64)], prob_NC.astype(np.float64) @ (values - values.min())


def about_one_class(
    names: Iterable[str],
    num_classes: int,
    average: str | None,
    negative_classes: Sequence[int] = (),
    *,
    has_grades: bool = False,
) -> dict[str, int]:
    """Return {metric: number of the class} of those that would be others if the classes were numbered otherwise.

    Args:
        names: of metrics.
        num_classes: of two classes, some metrics are about class 1 alone.
        average: how classes are averaged in precision, recall and F1.
        negative_classes: as for `best_threshold`.
        has_grades: whether metrics of queries go by the grades of labels, not by the numbers of classes.
    """
    of_cut = OF_CUT if list(negative_classes) in ([], [0]) else ()
    of_two = ("average_precision", *(PARTS if average == "binary" else ()), *of_cut)
    found = dict[str, int]()
    for name in names:
        if numbered := OF_A_CLASS.fullmatch(name):
            found[name] = int(numbered[1])
        elif num_classes == 2 and (name in of_two or (not has_grades and OF_GRADES.fullmatch(name))):
            found[name] = 1
    return found


def misread(labels: Sequence[str]) -> set[int]:
    """Return the numbers of classes that read as the label of another class: 1, where label `1` is class 0."""
    known = {*labels}
    return {number for number, label in enumerate(labels) if str(number) in known and str(number) != label}


class _Found:
    """The predictions of a split, together with the name and parameters of the metric."""

    def __init__(
        self,
        name: str,
        predictions: Predictions,
        negative: tuple[int, ...],
        number: int,
        label_values: Sequence[float] | None,
    ) -> None:
        self.name = name
        self.negative = negative
        self.number = number
        self.label_values = label_values
        self._predictions = predictions

    def __getitem__(self, key: str) -> Any:
        if key not in self._predictions:
            raise Missing(f"'{self.name}' needs '{key}', but the predictions contain: {', '.join(self._predictions)}")
        return np.asarray(self._predictions[key])

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return int(self["num_classes"] if "num_classes" in self._predictions else self["prob"].shape[1])

    @property
    def table(self) -> classes.Counts:
        """Rows counted by (target, prediction)."""
        return classes.confusion(self.one_label, self["pred"], self.num_classes)

    @property
    def prob_of_one(self) -> Any:
        """The probability of class 1 of two, (N,). Raises Missing if there are other than two."""
        if self.num_classes != 2:
            raise Missing(f"'{self.name}' is for two classes, but there are {self.num_classes}")
        return self["prob"][:, 1]

    @property
    def one_label(self) -> Any:
        """The target of each row. Raises Missing if rows may have several."""
        target = self["target"]
        if target.ndim == 2:
            raise Missing(f"'{self.name}' needs one label per row, but rows may have several")
        return target

    def averaged(self, average: Average, *, negative: Sequence[int] | None = None) -> tuple[float, float, float]:
        """Return averaged precision, recall and F1, for one label per row or several."""
        left_out = self.negative if negative is None else negative
        if self["target"].ndim == 2:
            target, pred = self["target"], self["pred"]
            return classes.several_labels(target, pred, average=average, negative_classes=left_out)
        return classes.precision_recall_f1(self.table, average=average, negative_classes=left_out)

    def macro(self, of_class: Callable[[Any, Any], float]) -> float:
        """Mean over the classes of how well each is told from the rest; those of all rows, or of none, left out."""
        target, prob = self["target"], self["prob"]
        there = target[:, None] == np.arange(prob.shape[1]) if target.ndim == 1 else target.astype(bool)
        some = there.any(axis=0) & ~there.all(axis=0)
        kept = [index for index in np.flatnonzero(some).tolist() if index not in self.negative]
        each = [of_class(there[:, index], prob[:, index]) for index in kept]
        return float(np.mean(each)) if each else float("nan")

    def f1_of_class(self) -> float:
        """Return the F1 of class `number`."""
        count = self.num_classes
        if self.number >= count:
            raise Missing(f"'{self.name}' is about class {self.number}, but classes go from 0 to {count - 1}")
        others = [index for index in range(count) if index != self.number]
        return self.averaged("macro", negative=others)[2]

    def ranks(self) -> tuple[Any, Any, Any]:
        """Return query, gain and score of each row."""
        query = self["query_id"]
        if "score" in self._predictions:
            return query, self["target"], self["score"]
        return query, *ranked(self["prob"], self.one_label, self.label_values)

    def gain_of_first(self) -> float:
        """Return NDCG@k with k = `number`."""
        query, gain, score = self.ranks()
        return ranking.discounted_gain(query, gain, score, self.number)

    def hit_among_first(self) -> float:
        """Return the share of queries with a relevant row among the first `number`."""
        query, gain, score = self.ranks()
        return ranking.hit_rate(query, gain, score, self.number)

    def cut(self) -> thresholds.Cut:
        """Return the best threshold for predicting any class that is not negative."""
        return best_threshold(self["prob"], self.one_label, self.negative)


def best_threshold(prob: NDArray[Any], target: NDArray[Any], negative_classes: Sequence[int] = ()) -> thresholds.Cut:
    """Find the threshold with the best (micro) F1, below which a row is predicted negative.

    Args:
        prob: shape (N, C).
        target: the class of each row, shape (N,).
        negative_classes: "nothing of interest"; class 0 when none is named.

    Returns:
        The threshold and its scores.
    """
    negative = list(negative_classes) or [0]
    others = np.array(prob, np.float64)
    others[:, negative] = -1.0
    choice = others.argmax(axis=1)
    score = np.take_along_axis(others, choice[:, None], axis=1)[:, 0]
    wanted = int((~np.isin(target, negative)).sum())
    return thresholds.best_cut(choice == target, score, lowest=0.0, highest=1.0, num_wanted=wanted)


def _perplexity(found: _Found) -> float:
    return float(np.exp(min(float(found["loss_sum"]) / float(found["count"]), 700.0))) if found["count"] else np.nan


def _in_averages() -> dict[str, Callable[[_Found], float]]:
    """Return the functions that compute precision, recall and F1 in each average, by name."""

    def finder(average: Average, place: int) -> Callable[[_Found], float]:
        return lambda found: found.averaged(average)[place]

    return {f"{average}_{part}": finder(average, place) for average in AVERAGES for place, part in enumerate(PARTS)}


TABLE: Sequence[tuple[re.Pattern[str], Callable[[_Found], float]]] = [
    (re.compile(name), find)
    for name, find in {
        "mcc": lambda found: classes.matthews(found.table),
        "kappa": lambda found: classes.kappa(found.table),
        "balanced_acc": lambda found: classes.balanced_accuracy(found.table),
        r"top(\d+)_acc": lambda found: classes.top_accuracy(found["prob"], found.one_label, found.number),
        **_in_averages(),
        OF_A_CLASS.pattern: _Found.f1_of_class,
        "macro_auc": lambda found: found.macro(ranking.area_under_curve),
        "macro_average_precision": lambda found: found.macro(ranking.average_precision),
        "auc": lambda found: ranking.area_under_curve(found.one_label, found.prob_of_one),
        "average_precision": lambda found: ranking.average_precision(found.one_label, found.prob_of_one),
        "best_f1": lambda found: found.cut().f1,
        "best_threshold": lambda found: found.cut().threshold,
        "mrr": lambda found: ranking.reciprocal_rank(*found.ranks()),
        "ndcg": lambda found: ranking.discounted_gain(*found.ranks()),
        r"ndcg@(\d+)": _Found.gain_of_first,
        r"hit@(\d+)": _Found.hit_among_first,
        "pearson": lambda found: regression.pearson(found["target"], found["score"]),
        "spearman": lambda found: regression.spearman(found["target"], found["score"]),
        "mse": lambda found: regression.mean_squared_error(found["target"], found["score"]),
        "mae": lambda found: regression.mean_absolute_error(found["target"], found["score"]),
        "ppl": _perplexity,
    }.items()
]
