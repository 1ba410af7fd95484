import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_absolute_error, mean_squared_error

from xdpx import metrics

RANDOM = np.random.default_rng(0)
TARGET, SCORE = RANDOM.integers(0, 6, 300).astype(np.float32), RANDOM.normal(size=300).round(1)


def test_correlations_are_those_of_scipy_ties_included():
    assert metrics.pearson(TARGET, SCORE) == pytest.approx(stats.pearsonr(TARGET, SCORE).statistic)
    assert metrics.spearman(TARGET, SCORE) == pytest.approx(stats.spearmanr(TARGET, SCORE).statistic)


def test_errors_are_those_of_scikit_learn():
    assert metrics.mean_squared_error(TARGET, SCORE) == pytest.approx(mean_squared_error(TARGET, SCORE))
    assert metrics.mean_absolute_error(TARGET, SCORE) == pytest.approx(mean_absolute_error(TARGET, SCORE))


def test_what_never_varies_correlates_with_nothing():
    assert np.isnan(metrics.pearson(np.arange(3), np.full(3, 0.1)))  # whose mean is not 0.1
    assert np.isnan(metrics.pearson(np.full(3, 0.1), np.full(3, 0.7)))
    assert np.isnan(metrics.pearson(TARGET, np.ones(300)))
    assert np.isnan(metrics.pearson(np.full(3, 0.1), np.array([1.0, 2.0, 4.0])))  # whose mean is 0.10000000000000002
    assert np.isnan(metrics.spearman(TARGET[:1], SCORE[:1]))
