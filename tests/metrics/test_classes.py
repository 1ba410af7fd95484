import time

import numpy as np
import pytest
from sklearn.metrics import (
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
    precision_score,
    recall_score,
    top_k_accuracy_score,
)

from xdpx import metrics

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


def test_nothing_scores_nan():
    assert np.isnan(metrics.accuracy(metrics.confusion(np.array([], int), np.array([], int), 2)))


def test_a_million_rows_take_little_time():
    target, score = RANDOM.integers(0, 2, 1_000_000), RANDOM.random(1_000_000, dtype=np.float32)
    begin = time.process_time()
    metrics.precision_recall_f1(metrics.confusion(target, (score > 0.5), 2), average="macro")
    metrics.area_under_curve(target, score)
    assert time.process_time() - begin < 10


def test_matthews_kappa_and_balanced_accuracy_are_those_of_scikit_learn():
    table = metrics.confusion(TARGET, PRED, 4)
    assert metrics.matthews(table) == pytest.approx(matthews_corrcoef(TARGET, PRED))
    assert metrics.kappa(table) == pytest.approx(cohen_kappa_score(TARGET, PRED))
    assert metrics.balanced_accuracy(table) == pytest.approx(balanced_accuracy_score(TARGET, PRED))


def test_matthews_of_one_predicted_class_is_zero():
    assert metrics.matthews(metrics.confusion(TARGET, np.zeros_like(TARGET), 4)) == 0.0


@pytest.mark.parametrize("most", [1, 2, 3])
def test_top_accuracy_is_that_of_scikit_learn(most):
    prob = RANDOM.random((500, 4))
    assert metrics.top_accuracy(prob, TARGET, most) == pytest.approx(top_k_accuracy_score(TARGET, prob, k=most))


def test_a_model_that_finds_all_classes_alike_or_gives_nan_is_not_right():
    target = np.array([0, 1])
    assert metrics.top_accuracy(np.full((2, 4), 0.25), target, 3) == 0.0
    assert metrics.top_accuracy(np.full((2, 4), np.nan), target, 3) == 0.0


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples"])
@pytest.mark.parametrize("negative", [[], [0], [0, 3]])
def test_scores_of_several_labels_per_row_are_those_of_scikit_learn(average, negative):
    target, pred = RANDOM.random((200, 4)) < 0.3, RANDOM.random((200, 4)) < 0.4
    labels = [label for label in range(4) if label not in negative]
    found = metrics.several_labels(target, pred, average=average, negative_classes=negative)
    peers = (precision_score, recall_score, f1_score)
    expected = [score(target[:, labels], pred[:, labels], average=average, zero_division=0) for score in peers]
    assert found == pytest.approx(expected)
