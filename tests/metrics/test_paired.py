"""Paired comparisons against scipy, published tables and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from xdpx.metrics import compare_scores, compare_shares, holm, mcnemar
from xdpx.metrics.paired import paired_share_interval


@pytest.mark.parametrize(("first", "second"), [(0, 5), (3, 12), (10, 11), (40, 25), (700, 640), (1, 3000)])
def test_mcnemar_is_the_binomial_test_of_scipy_less_half_of_what_was_seen(first: int, second: int) -> None:
    exact = stats.binomtest(first, first + second, 0.5).pvalue
    assert mcnemar(first, second) == pytest.approx(exact - stats.binom.pmf(first, first + second, 0.5), abs=1e-10)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_two_that_err_alike_do_not_differ() -> None:
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1.0


@pytest.mark.parametrize(
    ("both", "first", "second", "neither", "low", "high"),
    [(36, 12, 2, 0, 0.0569, 0.3404), (20, 12, 2, 16, 0.0562, 0.3292), (54, 0, 0, 0, -0.0664, 0.0664)],
)  # fmt: skip
def test_the_interval_is_that_of_the_published_table(
    both: int, first: int, second: int, neither: int, low: float, high: float
) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table II, method 10; there it is the first less the second."""
    total = both + first + second + neither
    found = paired_share_interval(both, second, first, total)
    assert found == pytest.approx((low, high), abs=1e-4)
    assert paired_share_interval(both, first, second, total) == pytest.approx((-high, -low), abs=1e-4)


def test_shares_are_compared_on_the_same_rows() -> None:
    first, second = np.array([1] * 80 + [0] * 20, bool), np.array([1] * 95 + [0] * 5, bool)
    found = compare_shares(first, second)
    assert (found.first, found.second) == (0.8, 0.95)
    assert found.p == mcnemar(0, 15)
    assert 0 < found.low < 0.15 < found.high


def test_the_bootstrap_of_a_mean_difference_agrees_with_scipy() -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(0, 1, 200), random.normal(0, 1, 200)
    found = compare_scores(
        lambda rows, groups: {"mean": one[rows].mean()}, lambda rows, groups: {"mean": other[rows].mean()}, 200,
        draws=4000,
    )["mean"]  # fmt: skip
    theirs = stats.bootstrap((other - one,), np.mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    paired = stats.ttest_rel(one, other)
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=0.02)
    assert found.p == pytest.approx(paired.pvalue, abs=0.03)


def test_a_metric_that_is_no_mean_is_compared_too() -> None:
    random = np.random.default_rng(2)
    target = random.normal(size=300)
    near, far = target + random.normal(0, 0.3, 300), target + random.normal(0, 1.5, 300)
    scores = [lambda rows, groups, guess=guess: {"rank": stats.spearmanr(target[rows], guess[rows])[0]}
              for guess in (far, near)]  # fmt: skip
    found = compare_scores(scores[0], scores[1], 300, draws=200)["rank"]
    assert found.low > 0.1
    assert found.p == pytest.approx(2 / 201)
    same = compare_scores(scores[0], scores[0], 300, draws=200)["rank"]
    assert (same.low, same.high, same.p) == (0, 0, 1)


@pytest.mark.parametrize(("num_rows", "p"), [(1, 1.0), (2, 0.5), (5, 1 / 16), (60, 2 / 201)])
def test_few_rows_prove_nothing_however_far_apart_they_are(num_rows: int, p: float) -> None:
    groups = np.arange(120) % num_rows
    scores = [lambda rows, groups, score=score: {"mean": score + rows.mean() * 0} for score in (0.0, 1.0)]
    assert compare_scores(scores[0], scores[1], 120, groups_N=groups, draws=200)["mean"].p == pytest.approx(p)


def test_many_comparisons_are_held_against_one_limit() -> None:
    """Holm 1979: the smallest times three, the next times two, never less than the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def test_equally_good_models_are_called_different_in_about_five_percent() -> None:
    random = np.random.default_rng(3)
    found = 0
    for _ in range(2000):
        hard = random.random(150)
        one, other = (hard + random.normal(0, 0.3, 150) < 0.7 for _ in range(2))
        found += mcnemar(int((one & ~other).sum()), int((other & ~one).sum())) < 0.05
    assert 0.035 <= found / 2000 <= 0.062
