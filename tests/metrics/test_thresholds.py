import numpy as np
import pytest
from sklearn.metrics import f1_score, fbeta_score, precision_score

from xdpx import metrics

RANDOM = np.random.default_rng(0)
POSITIVE = RANDOM.random(200) < 0.3
SCORE = (POSITIVE * 0.3 + RANDOM.random(200) * 0.7).round(2)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_no_other_threshold_is_better(beta):
    cut = metrics.best_cut(POSITIVE, SCORE, beta=beta)
    others = [fbeta_score(POSITIVE, at <= SCORE, beta=beta, zero_division=0) for at in np.unique(SCORE)]
    assert cut.f1 == pytest.approx(max(others))
    assert fbeta_score(POSITIVE, cut.threshold <= SCORE, beta=beta) == pytest.approx(cut.f1)


def test_the_threshold_stays_within_its_bounds():
    cut = metrics.best_cut(POSITIVE, SCORE, lowest=0.6, highest=0.65)
    assert 0.6 <= cut.threshold <= 0.65
    assert f1_score(POSITIVE, cut.threshold <= SCORE) == pytest.approx(cut.f1)


def test_precision_can_be_what_counts():
    cut = metrics.best_cut(POSITIVE, SCORE, goal="precision", highest=0.8)
    assert precision_score(POSITIVE, cut.threshold <= SCORE) == pytest.approx(cut.precision)
    assert cut.precision >= metrics.best_cut(POSITIVE, SCORE, highest=0.8).precision


def test_the_threshold_lies_between_scores_so_that_rounding_changes_nothing():
    assert metrics.best_cut(np.array([True, False]), np.array([0.8, 0.4])).threshold == pytest.approx(0.6)


def test_without_positive_rows_there_is_no_threshold():
    assert np.isnan(metrics.best_cut(np.array([False]), np.array([0.8])).threshold)
