import time

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from xdpx.losses import metrics

RANDOM = np.random.default_rng(0)
TARGET, PRED = RANDOM.integers(0, 4, 500), RANDOM.integers(0, 4, 500)
PRED[PRED == 3] = 2  # a class that is never predicted


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("negative", [[], [0], [0, 3]])
def test_precision_recall_and_f1_are_those_of_scikit_learn(average, negative):
    labels = [label for label in range(4) if label not in negative]
    found = metrics.precision_recall_f1(metrics.confusion(TARGET, PRED, 4), average=average, negative_classes=negative)
    peers = (precision_score, recall_score, f1_score)
    expected = [score(TARGET, PRED, labels=labels, average=average, zero_division=0) for score in peers]
    assert found == pytest.approx(expected)


def test_binary_average_looks_at_class_one():
    target, pred = TARGET % 2, PRED % 2
    found = metrics.precision_recall_f1(metrics.confusion(target, pred, 2), average="binary")
    assert found == pytest.approx([score(target, pred) for score in (precision_score, recall_score, f1_score)])


def test_samples_average_of_single_labels_is_accuracy():
    table = metrics.confusion(TARGET, PRED, 4)
    assert metrics.precision_recall_f1(table, average="samples")[2] == pytest.approx(metrics.accuracy(table))


def test_area_under_curve_is_that_of_scikit_learn_ties_included():
    target, score = TARGET % 2, RANDOM.integers(0, 20, 500) / 20
    assert metrics.area_under_curve(target, score) == pytest.approx(roc_auc_score(target, score))


def test_area_under_curve_of_one_class_has_no_value():
    assert np.isnan(metrics.area_under_curve(np.ones(3), np.array([0.1, 0.2, 0.3])))


def test_area_under_curve_of_nan_is_nan():
    assert np.isnan(metrics.area_under_curve(np.array([0, 1]), np.array([np.nan, 0.3])))


def test_nothing_scores_nan():
    assert np.isnan(metrics.accuracy(metrics.confusion(np.array([], int), np.array([], int), 2)))


def test_the_best_row_of_each_query_is_found():
    best = metrics.best_row_per_query(np.array([7, 5, 7, 5]), np.array([0.1, 0.9, 0.8, 0.2]))
    assert best.tolist() == [1, 2]


def test_a_million_rows_take_little_time():
    target, score = RANDOM.integers(0, 2, 1_000_000), RANDOM.random(1_000_000, dtype=np.float32)
    begin = time.perf_counter()
    metrics.precision_recall_f1(metrics.confusion(target, (score > 0.5), 2), average="macro")
    metrics.area_under_curve(target, score)
    assert time.perf_counter() - begin < 10
