"""A scored split as plain values: classes, confusions, scores by length, the worst errors with their texts.

What `x-eval --json` prints, and what its page shows. docs/files.md describes every key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx import metrics
from xdpx.inference.origins import origins
from xdpx.inference.plan import Input
from xdpx.inference.predictor import BatchPlaces, Predictor
from xdpx.inference.row_scores import intervals, row_scores
from xdpx.metrics import ClassScore, Judged

MOST_CLASSES = 200
"""Above this number of classes there is no confusion matrix, only the most confused pairs."""
MOST_PAIRS = 50
MOST_DOTS = 2000
"""Most rows of a regression in a scatter plot."""


def split_report(
    predictor: Predictor,
    source: Input,
    scores: Mapping[str, float],
    each_class: Sequence[ClassScore],
    gathered: Mapping[str, Any],
    places: Sequence[BatchPlaces],
    *,
    most: int,
    ignore_novel_target: bool = False,
) -> dict[str, Any]:
    """Return the report of one scored input as JSON values, except that numbers may be NaN or infinite.

    Args:
        predictor: the one that scored it.
        source: the input.
        scores: its metrics.
        each_class: the scores of each class.
        gathered: the predictions of all batches.
        places: of the batches, in the same order.
        most: number of the worst errors to look up.
        ignore_novel_target: the value it was scored with.
    """
    loss = predictor.task.loss
    judged: Judged | None = loss.judged(gathered, predictor.labels)
    found: dict[str, Any] = {"name": source.name, "path": source.path, "kind": judged.kind if judged else None}
    found |= {"rows": len(judged.right) if judged else sum(len(each.ids) for each in places), "scores": dict(scores)}
    found["classes"] = [_class_row(each) for each in each_class]
    found["confusion"], found["most_confused"], found["intervals"] = None, [], {}
    found["by_length"], found["errors"], found["error_quantiles"] = [], {"count": 0, "worst": []}, []
    found["calibration"] = None
    rows = row_scores(loss, gathered, judged)
    found["intervals"] = {} if rows is None else intervals(rows, scores)
    if judged is None or not len(judged.right):
        return found
    _add_shares(found, judged)
    if judged.kind == "class":
        _add_confusions(found, gathered, predictor)
        found["calibration"] = calibration(gathered)
    if judged.kind == "several":
        target, pred = (np.asarray(gathered[name]) for name in ("target", "pred"))
        found["scores"].setdefault("macro_f1", metrics.several_labels(target, pred, average="macro")[2])
    if judged.kind == "number":
        found["error_quantiles"] = metrics.error_quantiles(judged.badness)
        found["dots"] = _dots(np.asarray(gathered["target"]), np.asarray(gathered["score"]))
    if all(each.lengths is not None for each in places):
        lengths = np.concatenate([np.asarray(each.lengths) for each in places])
        found["by_length"] = metrics.by_length(judged, lengths[judged.places])
    ids = np.concatenate([each.ids for each in places])[judged.places]
    worst = judged.worst(most)
    wanted = ids[worst].tolist()
    texts = origins(predictor, source, wanted, ignore_novel_target=ignore_novel_target)
    found["errors"] = {
        "count": int((~judged.right).sum()),
        "worst": [
            {"place": texts[index].place, "texts": texts[index].texts, **judged.describe(int(row))}
            for row, index in zip(worst, wanted, strict=True)
            if index in texts
        ],
    }
    return found


def _class_row(score: ClassScore) -> dict[str, Any]:
    def interval(share: float, total: int) -> list[float] | None:
        return [*metrics.share_interval(share, total)] if total else None

    return {
        "name": score.name,
        "rows": score.num_rows,
        "predicted": score.num_predicted,
        "precision": score.precision,
        "precision_interval": interval(score.precision, score.num_predicted),
        "recall": score.recall,
        "recall_interval": interval(score.recall, score.num_rows),
        "f1": score.f1,
    }


def _add_shares(found: dict[str, Any], judged: Judged) -> None:
    """Add the share of entirely correct rows, with its interval; for a regression the mean error."""
    if judged.kind == "number":
        found["scores"]["mean_error"] = float(judged.badness.mean())
        found["intervals"]["mean_error"] = [*metrics.mean_interval(judged.badness)]
        return
    share = float(judged.right.mean())
    name = "acc" if math.isclose(found["scores"].get("acc", -1.0), share, abs_tol=1e-9) else "exact_rows"
    found["scores"][name] = share
    found["intervals"][name] = [*metrics.share_interval(share, len(judged.right))]


def _add_confusions(found: dict[str, Any], gathered: Mapping[str, Any], predictor: Predictor) -> None:
    """Add the confusion matrix, the most confused pairs, and macro F1."""
    target, pred, prob = (np.asarray(gathered[name]) for name in ("target", "pred", "prob"))
    count = prob.shape[1]
    labels = predictor.labels
    labels = labels if labels is not None and len(labels) == count else [*map(str, range(count))]
    left_out = predictor.task.loss.parameters.negative_classes_in_f1
    table = metrics.confusion(target, pred, count)
    wrong = table.copy()
    np.fill_diagonal(wrong, 0)
    cells = np.argsort(-wrong.ravel(), kind="stable")[:MOST_PAIRS].tolist()
    pairs = [divmod(cell, count) for cell in cells if wrong.ravel()[cell]]
    found["most_confused"] = [
        {"true": labels[row], "predicted": labels[column], "rows": int(table[row, column]),
         "share": float(table[row, column] / table[row].sum())}
        for row, column in pairs
    ]  # fmt: skip
    macro_f1 = metrics.precision_recall_f1(table, average="macro", negative_classes=left_out)[2]
    found["scores"].setdefault("macro_f1", macro_f1)
    if count <= MOST_CLASSES:
        found["confusion"] = {"labels": list(labels), "counts": table.tolist()}
        if "macro_f1" not in found["intervals"]:
            found["intervals"]["macro_f1"] = [*metrics.macro_f1_interval(table, negative_classes=left_out)]


def calibration(gathered: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how well the class probabilities are calibrated; None if the values are not probabilities.

    Args:
        gathered: the predictions of a split: `prob` (N, C), `pred` (N) and `target` (N).
    """
    target, pred, prob = (np.asarray(gathered[name]) for name in ("target", "pred", "prob"))
    sure = np.take_along_axis(prob, pred[:, None].astype(np.int64), axis=1)[:, 0].astype(np.float64)
    if not (np.isfinite(sure).all() and sure.min() >= 0 and sure.max() <= 1 + 1e-5):
        return None
    found = metrics.reliability(np.minimum(sure, 1.0), pred == target)
    return {
        "ece": found.error,
        "by_chance": found.by_chance,
        "most_by_chance": found.most_by_chance,
        "debiased_rms": found.debiased,
        "too_sure": found.too_sure,
        "bins": [{**each._asdict(), "interval": [*each.interval]} for each in found.bins],
        "histogram": np.histogram(sure, bins=20, range=(0.0, 1.0 + 1e-5))[0].tolist(),
    }


def _dots(target_N: NDArray[Any], score_N: NDArray[Any]) -> list[list[float]]:
    """Return [target, predicted] of rows spread evenly over the split."""
    step = max(1, -(-len(target_N) // MOST_DOTS))
    return [[float(wanted), float(found)] for wanted, found in zip(target_N[::step], score_N[::step], strict=True)]
