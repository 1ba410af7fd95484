"""The bootstrap: coverage, groups, large splits, and scores that have no value."""

from __future__ import annotations

import numpy as np
import pytest

from xdpx import metrics
from xdpx.metrics import bootstrap, percentile_interval, resampling


@pytest.mark.parametrize(("table", "rows"), [([[49, 1], [1, 49]], 200), ([[72, 18], [2, 8]], 50)])
def test_the_intervals_of_f1_hold_the_true_value_in_93_to_97_percent(table, rows) -> None:
    """250 splits from a classifier whose macro F1 is known, where percentiles of the draws hold it in 89 and 93 %."""
    random = np.random.default_rng(2)
    table = np.array(table)
    shares, truth = (table / table.sum()).ravel(), metrics.precision_recall_f1(table, average="macro")[2]
    held = 0
    for _ in range(250):
        drawn = random.multinomial(rows, shares).reshape(table.shape)
        low, high = metrics.macro_f1_interval(drawn, draws=120)
        held += low <= truth <= high
    assert 0.92 <= held / 250 <= 0.98


def test_a_perfect_mean_over_classes_is_as_uncertain_as_its_smallest_class_makes_it() -> None:
    classes = np.repeat([0, 1], [90, 10])
    assert metrics.evidence_of(classes) == pytest.approx(36.0)
    perfect = np.ones(100)
    assert metrics.bounded_interval(1.0, perfect, 36.0) == metrics.share_interval(1.0, 36)
    assert metrics.bounded_interval(-1.0, -perfect, 36.0, lowest=-1.0)[1] > -1.0


def test_the_interval_of_a_correlation_is_that_of_fisher() -> None:
    random = np.random.default_rng(0)
    pairs = random.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 300)
    value = float(np.corrcoef(pairs.T)[0, 1])
    draws = bootstrap(lambda rows, groups: {"r": np.corrcoef(pairs[rows].T)[0, 1]}, 300, draws=600)["r"]
    low, high = metrics.bounded_interval(value, draws, 300, lowest=-1.0)
    reach = 1.96 / np.sqrt(297)
    assert [low, high] == pytest.approx(np.tanh([np.arctanh(value) - reach, np.arctanh(value) + reach]), abs=0.01)


def test_a_bounded_score_that_cannot_be_judged_has_no_interval() -> None:
    draws = np.array([0.5, 0.6] * 50)
    assert np.isnan(metrics.bounded_interval(87.5, draws, 100)).all()
    assert np.isnan(metrics.bounded_interval(0.5, draws, 1.0)).all()
    assert np.isnan(metrics.bounded_interval(0.5, np.array([0.5, 0.6, *[np.nan] * 6]), 100)).all()


def test_it_is_the_same_every_time() -> None:
    values = np.arange(30.0)
    one, other = (bootstrap(lambda rows, groups: {"mean": values[rows].mean()}, 30, draws=20) for _ in range(2))
    assert (one["mean"] == other["mean"]).all()


def test_copies_of_a_row_are_drawn_together_so_that_they_count_once() -> None:
    random = np.random.default_rng(0)
    values, groups = np.repeat(random.normal(size=50), 20), np.repeat(np.arange(50), 20)

    def score(rows, drawn):
        assert len(rows) == 1000
        assert len(np.unique(drawn)) == 50
        return {"mean": values[rows].mean()}

    together = bootstrap(score, 1000, groups_N=groups, draws=200)["mean"]
    alone = bootstrap(lambda rows, drawn: {"mean": values[rows].mean()}, 1000, draws=200)["mean"]
    assert together.std() == pytest.approx(values.std() / np.sqrt(50), rel=0.2)
    assert alone.std() < together.std() / 3


def test_groups_may_lie_apart_and_differ_in_size() -> None:
    groups = np.array([7, 3, 7, 3, 3])
    seen = []
    bootstrap(lambda rows, drawn: seen.append((rows, drawn)) or {}, 5, groups_N=groups, draws=30)
    for rows, drawn in seen:
        for number in np.unique(drawn):
            assert sorted(rows[drawn == number].tolist()) in ([0, 2], [1, 3, 4])


def test_a_large_split_is_drawn_in_part_and_spreads_as_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=5000)
    monkeypatch.setattr(resampling, "MOST_ROWS", 500)
    found = bootstrap(lambda rows, groups: {"mean": values[rows].mean()}, 5000, draws=400)["mean"]
    assert found.std() == pytest.approx(values.std() / np.sqrt(5000), rel=0.15)
    assert found.mean() == pytest.approx(values.mean(), abs=0.003)


def test_a_score_without_value_in_too_many_draws_has_no_interval() -> None:
    assert np.isnan(percentile_interval(np.array([0.5] * 90 + [np.nan] * 10), 100)).all()
    assert percentile_interval(np.array([0.5] * 98 + [np.nan] * 2), 100) == (0.5, 0.5)
    assert np.isnan(percentile_interval(np.array([0.5] * 9), 1)).all()
