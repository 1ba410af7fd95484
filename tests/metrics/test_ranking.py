import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from xdpx import metrics

RANDOM = np.random.default_rng(0)
QUERY, GAIN, SCORE = RANDOM.integers(0, 30, 400), RANDOM.integers(0, 3, 400), RANDOM.random(400)


def test_area_under_curve_is_that_of_scikit_learn_ties_included():
    target, score = GAIN % 2, RANDOM.integers(0, 20, 400) / 20
    assert metrics.area_under_curve(target, score) == pytest.approx(roc_auc_score(target, score))


def test_area_under_curve_of_one_class_has_no_value():
    assert np.isnan(metrics.area_under_curve(np.ones(3), np.array([0.1, 0.2, 0.3])))


def test_area_under_curve_of_nan_is_nan():
    assert np.isnan(metrics.area_under_curve(np.array([0, 1]), np.array([np.nan, 0.3])))


def test_the_best_row_of_each_query_is_found():
    best = metrics.best_row_per_query(np.array([7, 5, 7, 5]), np.zeros(4), np.array([0.1, 0.9, 0.8, 0.2]))
    assert best.tolist() == [1, 2]


def test_the_best_row_of_equal_scores_is_one_that_is_not_relevant():
    query, gain = np.array([3, 3, 3, 1, 1]), np.array([True, False, True, False, True])
    assert metrics.best_row_per_query(query, gain, np.full(5, 0.5)).tolist() == [3, 1]


def test_average_precision_is_that_of_scikit_learn_ties_included():
    target, score = GAIN % 2, RANDOM.integers(0, 20, 400) / 20
    assert metrics.average_precision(target, score) == pytest.approx(average_precision_score(target, score))


@pytest.mark.parametrize("most", [None, 3])
def test_discounted_gain_is_that_of_scikit_learn(most):
    rows = [query == QUERY for query in np.unique(QUERY)]
    expected = [ndcg_score(GAIN[each][None], SCORE[each][None], k=most) for each in rows if GAIN[each].any()]
    assert metrics.discounted_gain(QUERY, GAIN, SCORE, most) == pytest.approx(np.mean(expected))


def test_reciprocal_rank_and_hit_rate_follow_their_definition():
    query, gain = np.array([1, 1, 1, 2, 2, 3]), np.array([0, 1, 0, 1, 0, 0])
    score = np.array([0.9, 0.5, 0.1, 0.8, 0.2, 0.4])
    assert metrics.reciprocal_rank(query, gain, score) == pytest.approx((1 / 2 + 1) / 2)
    assert metrics.hit_rate(query, gain, score, 1) == pytest.approx(1 / 2)


def test_equal_scores_earn_nothing():
    query, gain, score = np.zeros(4, int), np.array([1, 0, 0, 0]), np.ones(4)
    assert metrics.reciprocal_rank(query, gain, score) == pytest.approx(1 / 4)
    assert metrics.hit_rate(query, gain, score, 3) == 0.0


def test_without_a_relevant_row_order_has_no_value():
    query, gain, score = np.zeros(2, int), np.zeros(2, int), np.ones(2)
    found = [metrics.reciprocal_rank(query, gain, score), metrics.discounted_gain(query, gain, score)]
    assert np.isnan([*found, metrics.average_precision(gain, score)]).all()
