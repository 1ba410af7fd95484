"""Predictions of a run, or from a file that x-pred wrote, in a form that can be compared row by row."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xdpx import metrics
from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.predicted_file import (
    TO_COMPARE,
    Cells,
    Labels,
    columns_of_classes,
    labels_in,
    labels_of,
    read_columns,
    read_header,
    read_labels,
    read_probabilities,
)
from xdpx.inference.row_scores import RowScores, of_tags, row_scores
from xdpx.logger import log
from xdpx.metrics import named
from xdpx.metrics.classes import Average
from xdpx.metrics.judging import LABEL_COLUMNS, NUMBER_COLUMNS, TAG_COLUMNS

if TYPE_CHECKING:
    from xdpx.inference.plan import Input
    from xdpx.inference.predictor import Predictor

OWN_COLUMNS = frozenset({*LABEL_COLUMNS, *TAG_COLUMNS, *NUMBER_COLUMNS})
"""Columns that x-pred appends to those of a file."""
SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Comparable:
    """Predicted rows with their scores.

    Attributes:
        name: of the run or file.
        on: path of the file that was predicted.
        split: its name for other runs: a split, or a path.
        scores: over all rows.
        rows: computes the scores of any selection of rows.
        keys: the content of each row, label included.
        right: which rows are predicted correctly, (N,); None if rows have no right or wrong (numbers).
        deciding: the metric that the run was trained for; for a file, the usual one for its kind of predictions.
        share: the metric that equals the share of correct rows, '' if there is none.
    """

    name: str
    on: str
    split: str
    scores: Mapping[str, float]
    rows: RowScores
    keys: Sequence[str]
    right: NDArray[np.bool_] | None
    deciding: str
    share: str

    def in_order_of(self, other: Comparable) -> Comparable:
        """Return the same rows in the order of `other`.

        Raises:
            ConfigError: the two do not hold the same rows.
        """
        if list(self.keys) == list(other.keys):
            return self
        _refuse_others(self, other)
        places: dict[str, deque[int]] = defaultdict(deque)
        for place, key in enumerate(self.keys):
            places[key].append(place)
        order = np.array([places[key].popleft() for key in other.keys])
        score = self.rows.score
        groups = None if self.rows.groups is None else self.rows.groups[order]
        return replace(
            self,
            rows=RowScores(lambda rows, drawn: score(order[rows], drawn), self.rows.num_rows, groups),
            keys=list(other.keys),
            right=None if self.right is None else self.right[order],
        )

    @cached_property
    def copies(self) -> NDArray[np.int64] | None:
        """Group number of each row, for rows drawn together: of one query, or copies of a row; None if all differ."""
        if self.rows.groups is not None:
            return self.rows.groups
        numbers: dict[str, int] = {}
        same = np.array([numbers.setdefault(key, len(numbers)) for key in self.keys])
        return None if len(numbers) == len(self.keys) else same


def _refuse_others(first: Comparable, second: Comparable) -> None:
    ours, theirs = Counter(first.keys), Counter(second.keys)
    faults = []
    for one, other, surplus in ((first, second, ours - theirs), (second, first, theirs - ours)):
        if surplus:
            example = next(iter(surplus))[:SHOWN_CHARACTERS].replace("\t", " | ")
            problem = f"{surplus.total():,} of {len(one.keys):,} rows of {one.on} are not in {other.name}: '{example}'."
            faults.append(Fault(one.name, problem, ""))
    if faults:
        remedy = "Only the same rows, with the same labels, can be compared: name one raw file with on=FILE."
        raise ConfigError("x-script compare_runs", [*faults[:-1], replace(faults[-1], remedy=remedy)])


# ---- a finished run


def of_run(folder: str, on: str, metric: str, *, source: str) -> Comparable:
    """Score a split or a file with a finished run, and return its predictions.

    Args:
        folder: of the run.
        on: a split of its data, or a file; '' for the split that training evaluated.
        metric: a further metric to compute, '' for none.
        source: named in error messages.

    Raises:
        ConfigError: there is no such run or input, or its loss has no scores of single rows.
    """
    from xdpx.inference.plan import InferenceParameters, find_input, make_plan
    from xdpx.inference.predictor import Predictor
    from xdpx.tasks.scoring import score_placed

    extra = {"metrics": [metric]} if metric not in {"", "loss"} else {}
    plan = make_plan(InferenceParameters(save_dir=folder, extra_config=extra), source)
    wanted = on or str(plan.train.values["valid_subset"])
    each = find_input(wanted, plan, "on", source)
    predictor = Predictor(plan)
    loss = predictor.task.loss
    (scores, _), gathered, places = score_placed(
        predictor.engine, predictor.state, predictor.placed_batches(each), loss, labels=predictor.labels
    )
    log.take_accumulated()
    judged = loss.judged(gathered, predictor.labels)
    rows = row_scores(loss, gathered, judged)
    if rows is None or judged is None:
        problem = f"the loss '{plan.train.values['loss']}' does not score single rows."
        raise ConfigError(source, [Fault(folder, problem, "Compare what x-eval prints.")])
    ids = np.concatenate([place.ids for place in places])[judged.places]
    labels = [str(judged.describe(row)["true"]) for row in range(len(ids))]
    own = {"class": "acc", "several": "acc", "tags": "exact_rows"}.get(judged.kind, "")
    return Comparable(
        name=folder,
        on=each.path,
        split=wanted,
        scores=scores,
        rows=rows,
        keys=[f"{text}\t{label}" for text, label in zip(_texts(predictor, each, ids.tolist()), labels, strict=True)],
        right=None if judged.kind == "number" else judged.right,
        deciding=str(plan.train.values["major_metric"]),
        share=own,
    )


def _texts(predictor: Predictor, source: Input, ids: Sequence[int]) -> list[str]:
    """Return the text of each row from the raw file, or 'row NUMBER' if it cannot be found there."""
    from xdpx.inference.origins import origins

    found = origins(predictor, source, ids)
    return ["\t".join(found[index].texts) if index in found else f"row {index}" for index in ids]


# ---- a file of predictions


def of_file(path: str, metric: str, target: str, separator: str | None = None) -> Comparable:
    """Read predictions that x-pred wrote for labelled rows.

    Args:
        path: the file.
        metric: a further metric to compute, '' for none.
        target: the column of the correct labels.
        separator: between the labels of a row, if it may have several; None to find it.

    Raises:
        ConfigError: a column is missing, or holds invalid values.
    """
    header = read_header(path)
    column = next((name for name in ("pred", "score", "tags") if name in header), "")
    if not column:
        problem = "has no column of predictions: pred, score or tags."
        raise ConfigError(path, [Fault("predictions", problem, "Predict with x-pred, header: true.")])
    kept = sorted({name for name in header if name not in OWN_COLUMNS}, key=lambda name: (name == target, name))
    texts = kept if target in kept else [target]
    own = [column, *(name for name in ("prob", "target_prob") if column == "pred" and name in header)]
    keys_of_names = ["target_col_name" for _ in texts] + own
    columns = dict(zip([*texts, *own], read_columns(path, [*texts, *own], keys_of_names), strict=True))
    wanted, written = columns[target], {name: columns[name] for name in own}
    labels = None
    if column == "pred":
        labels = read_labels(path, wanted, written["pred"], written.get("target_prob", ()), separator)
        columns[target] = labels.wanted
    keys = ["\t".join(cells) for cells in zip(*(columns[name] for name in kept), strict=True)]
    if set(kept) <= {target}:  # only the position distinguishes rows with the same label
        keys = [f"row {number}\t{label}" for number, label in enumerate(columns[target], 1)]
    if not keys:
        raise ConfigError(path, [Fault("predictions", "contains no rows.", "Predict again.")])
    if labels is not None and labels.separator is not None:
        rows, right, deciding, share = _several(path, labels, labels.separator, written, metric)
    else:
        reading = {"pred": _classes, "score": _numbers, "tags": _tags}[column]
        rows, right, deciding, share = reading(path, wanted, written, metric)
    return Comparable(path, path, path, metrics.of_all(rows.score, len(keys)), rows, keys, right, deciding, share)


Read = tuple[RowScores, NDArray[np.bool_] | None, str, str]


def _classes(path: str, wanted: Sequence[str], written: Cells, metric: str) -> Read:
    labels = labels_of(path, wanted, written["pred"])
    target, pred = labels.classes(wanted), labels.classes(written["pred"])
    count = len(labels)
    some: dict[str, Any] = {"target": target, "pred": pred, "num_classes": count}
    if metric not in _of_table(target, pred, count) and _needs_order(metric, some):
        has_target, has_pred = (each[:, None] == np.arange(count) for each in (target, pred))
        order, prob = _order_of_classes(path, metric, has_target, written, has_pred)
        some = {"target": order[target], "pred": order[pred], "prob": prob}

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        scores = _of_table(target[rows], pred[rows], count)
        return scores | _asked(path, metric, _rows_of(some, rows), scores)

    return RowScores(score, len(target)), target == pred, "acc", "acc"


def _several(path: str, labels: Labels, separator: str, written: Cells, metric: str) -> Read:
    """Read rows that may have several labels, or none."""
    empty = sum(not cell for cell in written.get("prob", ()))
    if empty:
        log.warning(f"{path}: {empty:,} of {len(labels.found):,} rows have no prediction, which counts as no label")
    known = {label for cell in {*labels.wanted, *labels.found} for label in labels_in(cell, separator)}
    names = {label: place for place, label in enumerate(sorted(known))}
    # Classes of the run that no row has count 0 in averages over classes.
    count = max([len(names), *(cell.count(",") + 1 for cell in set(written.get("prob", ())) if cell)])
    target, pred = (_has(cells, names, separator, count) for cells in (labels.wanted, labels.found))
    some: dict[str, Any] = {"target": target, "pred": pred, "num_classes": count}
    if metric not in _of_sets(some) and _needs_order(metric, some):
        place, prob = _order_of_classes(path, metric, target[:, : len(names)], written)
        some = {"target": np.zeros(prob.shape, bool), "pred": np.zeros(prob.shape, bool), "prob": prob}
        some["target"][:, place], some["pred"][:, place] = target[:, : len(names)], pred[:, : len(names)]

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        drawn = _rows_of(some, rows)
        scores = _of_sets(drawn)
        return scores | _asked(path, metric, drawn, scores)

    return RowScores(score, len(target)), labels.right, "acc", "acc"


def _has(cells: Sequence[str], names: Mapping[str, int], separator: str, count: int) -> NDArray[np.bool_]:
    """Return which labels each cell contains, (N, count)."""
    rows = {cell: row for row, cell in enumerate(dict.fromkeys(cells))}
    found = np.zeros((len(rows), count), np.bool_)
    for cell, row in rows.items():
        found[row, [names[label] for label in labels_in(cell, separator)]] = True
    each = np.array([rows[cell] for cell in cells])
    return np.take(found, each, axis=0)


def _of_sets(some: Mapping[str, Any]) -> dict[str, float]:
    target, pred = some["target"], some["pred"]
    averages: tuple[Average, ...] = ("micro", "macro")
    scores = {f"{average}_f1": metrics.several_labels(target, pred, average=average)[2] for average in averages}
    return {"acc": float((target == pred).all(axis=1).mean()), **scores}


def _of_table(target: NDArray[np.int64], pred: NDArray[np.int64], count: int) -> dict[str, float]:
    table = metrics.confusion(target, pred, count)
    return {
        "acc": metrics.accuracy(table),
        "macro_f1": metrics.precision_recall_f1(table, average="macro")[2],
        "mcc": metrics.matthews(table),
    }


def _rows_of(some: Mapping[str, Any], rows: NDArray[np.int64]) -> dict[str, Any]:
    return {name: each[rows] if isinstance(each, np.ndarray) else each for name, each in some.items()}


def _needs_order(metric: str, some: Mapping[str, Any]) -> bool:
    """Return whether a metric reads probabilities, or goes by the number of a class."""
    try:
        named.compute(metric, some)
    except named.Missing:
        return True
    return named.OF_A_CLASS.fullmatch(metric) is not None


def _order_of_classes(
    path: str, metric: str, wanted_NL: NDArray[np.bool_], written: Cells, best_NL: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of the class of each label, (L,), and the probabilities of the classes, (N, C).

    Raises:
        ConfigError: the file has no probabilities, or they leave open which label is which class.
    """
    if "prob" not in written:
        problem = f"'{metric}' needs the probabilities of all classes, but there is no column 'prob'."
        raise ConfigError(path, [Fault("major_metric", problem, TO_COMPARE)])
    prob = read_probabilities(path, written["prob"])
    order = columns_of_classes(wanted_NL, prob, written, best_NL)
    if order is None:
        problem = f"'{metric}' needs the label of each probability in 'prob', and the rows leave it open."
        raise ConfigError(path, [Fault("major_metric", problem, TO_COMPARE)])
    return order, prob


def _numbers(path: str, wanted: Sequence[str], written: Cells, metric: str) -> Read:
    try:
        target, given = (np.array([float(cell) for cell in cells]) for cells in (wanted, written["score"]))
    except ValueError as error:
        raise ConfigError(path, [Fault("score", f"contains something other than numbers ({error}).", "")]) from error
    unknown = np.flatnonzero(~(np.isfinite(target) & np.isfinite(given)))
    if len(unknown):
        problem = f"{len(unknown):,} of {len(target):,} rows hold NaN or infinity, first row {unknown[0] + 1}."
        raise ConfigError(path, [Fault("score", problem, "Find out why the model outputs them, and predict again.")])

    def score(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        del groups
        some = {"target": target[rows], "score": given[rows]}
        scores = {name: _computed(name, some) for name in ("spearman", "pearson", "mse", "mae")}
        return scores | _asked(path, metric, some, scores)

    return RowScores(score, len(target)), None, "spearman", ""


def _computed(name: str, some: Mapping[str, Any]) -> float:
    value = named.compute(name, some)
    return float("nan") if value is None else value


def _asked(path: str, metric: str, some: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, float]:
    """Return {metric: value} for a metric requested by name, empty if `scores` has it already."""
    if not metric or metric in scores:
        return {}
    try:
        value = named.compute(metric, some)
    except named.Missing as error:
        raise ConfigError(path, [Fault("major_metric", f"{error}.", f"It has: {', '.join(scores)}.")]) from error
    if value is None:
        raise ConfigError(path, [Fault("major_metric", f"there is no '{metric}'.", f"It has: {', '.join(scores)}.")])
    return {metric: value}


def _tags(path: str, wanted: Sequence[str], written: Cells, metric: str) -> Read:
    targets, preds = ([cell.split() for cell in cells] for cells in (wanted, written["tags"]))
    unequal = [line for line, (one, other) in enumerate(zip(targets, preds, strict=True), 2) if len(one) != len(other)]
    if unequal:
        problem = f"line {unequal[0]} has a different number of tags and words."
        raise ConfigError(path, [Fault("tags", problem, "Predict again.")])
    judged = metrics.judge_tags(targets, preds, np.arange(len(targets)))
    if metric not in {"", "acc", "precision", "recall", "f1"}:
        fault = Fault("major_metric", f"there is no '{metric}'.", "It has: acc, precision, recall, f1.")
        raise ConfigError(path, [fault])
    return of_tags(judged.counts), judged.right, "f1", "exact_rows"
