from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    matthews_corrcoef,
    precision_recall_fscore_support,
    roc_auc_score,
)

from xdpx.config.faults import ConfigError
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.metrics.named import CLASSIFICATION, Missing, compute

RANDOM = np.random.default_rng(0)
PROB = RANDOM.dirichlet(np.ones(3), size=300)
ROWS: dict[str, Any] = {
    "prob": PROB, "pred": PROB.argmax(axis=1), "target": RANDOM.integers(0, 3, 300), "loss_sum": 600.0, "count": 300.0,
    "query_id": RANDOM.integers(0, 20, 300),
}  # fmt: skip


def loss(**values: Any) -> CrossEntropy:
    return CrossEntropy(CrossEntropy.Parameters(num_classes=3, **values))


def test_every_name_that_cross_entropy_declares_is_computed() -> None:
    two = {**ROWS, "prob": PROB[:, :2] / PROB[:, :2].sum(axis=1, keepdims=True), "target": ROWS["target"] % 2}
    two["pred"] = two["prob"].argmax(axis=1)
    for name in CLASSIFICATION:
        assert np.isfinite(compute(name.replace("*", "1"), two) or 0.0), name


def test_averages_and_single_classes_are_those_of_scikit_learn() -> None:
    target, pred = ROWS["target"], ROWS["pred"]
    assert compute("macro_f1", ROWS) == pytest.approx(f1_score(target, pred, average="macro"))
    assert compute("f1_2", ROWS) == pytest.approx(f1_score(target, pred, average=None)[2])
    assert compute("mcc", ROWS) == pytest.approx(matthews_corrcoef(target, pred))


def test_negative_classes_are_left_out_of_averages_but_not_of_a_class_of_their_own() -> None:
    expected = f1_score(ROWS["target"], ROWS["pred"], average="macro", labels=[1, 2])
    assert compute("macro_f1", ROWS, negative_classes=[0]) == pytest.approx(expected)
    assert compute("f1_0", ROWS, negative_classes=[0]) == compute("f1_0", ROWS)


def test_metrics_of_two_classes_are_refused_for_three_and_counts_do_without_probabilities() -> None:
    with pytest.raises(Missing, match="'auc' is for two classes, but there are 3"):
        compute("auc", ROWS)
    counted = {"target": ROWS["target"], "pred": ROWS["pred"], "num_classes": 3}
    assert compute("macro_f1", counted) == compute("macro_f1", ROWS)
    with pytest.raises(Missing, match="needs 'prob'"):
        compute("top2_acc", counted)


def test_several_labels_per_row_have_averages_too() -> None:
    target, pred = RANDOM.random((50, 3)) < 0.4, RANDOM.random((50, 3)) < 0.4
    expected = f1_score(target, pred, average="samples", zero_division=0)
    assert compute("samples_f1", {"target": target, "pred": pred, "prob": pred}) == pytest.approx(expected)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples"])
def test_precision_recall_and_f1_of_several_labels_come_in_every_average(average: str) -> None:
    target, pred = RANDOM.random((50, 4)) < 0.4, RANDOM.random((50, 4)) < 0.4
    expected = precision_recall_fscore_support(target, pred, average=average, zero_division=0)
    rows = {"target": target, "pred": pred, "prob": pred}
    found = [compute(f"{average}_{part}", rows) for part in ("precision", "recall", "f1")]
    assert found == pytest.approx(expected[:3])


def test_areas_of_several_labels_are_means_over_them() -> None:
    target, prob = RANDOM.random((60, 4)) < 0.4, RANDOM.random((60, 4))
    rows = {"target": target, "pred": prob > 0.5, "prob": prob}
    assert compute("macro_auc", rows) == pytest.approx(roc_auc_score(target, prob, average="macro"))
    expected = average_precision_score(target, prob, average="macro")
    assert compute("macro_average_precision", rows) == pytest.approx(expected)
    one = roc_auc_score(ROWS["target"], PROB, multi_class="ovr", average="macro")
    assert compute("macro_auc", ROWS) == pytest.approx(one)
    nowhere = {**rows, "target": np.concatenate([target[:, :3], np.zeros((60, 1), bool)], axis=1)}
    assert compute("macro_auc", nowhere) == pytest.approx(roc_auc_score(target[:, :3], prob[:, :3], average="macro"))


@pytest.mark.parametrize("name", ["mcc", "top1_acc", "best_f1", "auc"])
def test_metrics_of_one_label_per_row_are_refused_for_several(name: str) -> None:
    target = RANDOM.random((50, 3)) < 0.4
    with pytest.raises(Missing, match=rf"'{name}' needs one label per row"):
        compute(name, {"target": target, "pred": target, "prob": target.astype(float)})


def test_a_class_that_is_not_there_has_no_f1() -> None:
    with pytest.raises(Missing, match=r"'f1_3' is about class 3, but classes go from 0 to 2"):
        compute("f1_3", ROWS)


def test_what_the_predictions_lack_is_named() -> None:
    with pytest.raises(Missing, match=r"'mrr' needs 'query_id', but the predictions contain: prob"):
        compute("mrr", {"prob": PROB, "target": ROWS["target"]})


def test_the_best_threshold_is_at_least_as_good_as_any_other() -> None:
    at = compute("best_threshold", ROWS)
    scores = [threshold_f1(each) for each in np.linspace(0, 1, 101)]
    assert at is not None
    assert threshold_f1(at) == pytest.approx(compute("best_f1", ROWS))
    assert threshold_f1(at) >= max(scores) - 1e-12


def threshold_f1(threshold: float) -> float:
    """F1 that cross_entropy gives with a threshold, class 0 being the negative one."""
    import torch

    one = loss(predict_threshold=threshold, negative_classes_in_f1=[0], f1_average="micro")
    return one.metrics({**ROWS, "pred": one.predict(torch.from_numpy(PROB)).numpy()})["f1"]


def test_a_loss_gives_what_a_config_asks_for_beside_its_own() -> None:
    plain = loss().scores(ROWS)
    asked = loss(metrics=["top2_acc", "acc"], major_metric="macro_f1").scores(ROWS)
    assert set(asked) - set(plain) == {"top2_acc", "macro_f1"}
    assert {name: asked[name] for name in plain} == plain


def test_with_a_threshold_the_best_one_is_reported() -> None:
    assert {"best_f1", "best_threshold"} <= loss(predict_threshold=0.5).metrics(ROWS).keys()


def test_a_metric_that_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"metrics: this loss has no 'ac'\. Did you mean 'acc'\?"):
        loss(metrics=["ac"]).scores(ROWS)
