"""Scores of several runs are averaged at equal samples; a run that ended by itself keeps the score it ended with."""

from __future__ import annotations

import pytest

from xdpx.tuning.objective import RunProgress, interval_at, mean_curve


def test_folds_are_averaged_where_all_of_them_were_evaluated() -> None:
    parts = [
        RunProgress(30, [(10, 0.5), (20, 0.7), (30, 0.9)], over=False),
        RunProgress(30, [(10, 0.3), (30, 0.7)], over=False),
    ]
    assert mean_curve(parts) == [(10, pytest.approx(0.4)), (30, pytest.approx(0.8))]


def test_a_fold_that_ended_early_counts_with_its_last_score() -> None:
    parts = [RunProgress(30, [(10, 0.5), (30, 0.9)], over=True), RunProgress(10, [(10, 0.3)], over=True)]
    assert mean_curve(parts) == [(10, pytest.approx(0.4)), (30, pytest.approx(0.6))]


def test_the_interval_of_a_mean_is_that_of_student() -> None:
    parts = [RunProgress(10, [(10, score)], over=True) for score in (0.5, 0.6, 0.7)]
    low, high = interval_at(parts, 10) or (0, 0)
    assert low == pytest.approx(0.6 - 4.303 * 0.1 / 3**0.5)
    assert high == pytest.approx(0.6 + 4.303 * 0.1 / 3**0.5)
    assert interval_at(parts[:1], 10) is None
    near = [RunProgress(10, [(10, score)], over=True) for score in (0.9, 0.99, 1.0)]
    assert [interval_at(near, 10, metric=name)[1] for name in ("acc", "macro_f1", "mcc")] == [1.0, 1.0, 1.0]
    assert interval_at(near, 10, metric="loss")[1] > 1.08
    percent = [RunProgress(10, [(10, score)], over=True) for score in (90.0, 99.0, 100.0)]
    assert interval_at(percent, 10, metric="acc")[1] > 100


def test_seeds_of_one_fold_are_no_further_folds_for_the_interval() -> None:
    parts = [RunProgress(10, [(10, score)], over=True) for score in (0.5, 0.52, 0.6, 0.62, 0.7, 0.72)]
    low, high = interval_at(parts, 10, folds=3) or (0, 0)
    assert (low, high) == (pytest.approx(0.61 - 4.303 * 0.1 / 3**0.5), pytest.approx(0.61 + 4.303 * 0.1 / 3**0.5))
