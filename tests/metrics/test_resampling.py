"""The bootstrap: coverage, groups, large splits, and scores that have no value."""

from __future__ import annotations

import numpy as np
import pytest

from xdpx import metrics
from xdpx.metrics import bootstrap, percentile_interval, resampling


def test_the_intervals_of_f1_hold_the_true_value_in_93_to_97_percent() -> None:
    """400 splits of 150 rows from a classifier whose macro F1 is known."""
    random = np.random.default_rng(0)
    table = np.array([[50, 10, 5], [8, 40, 7], [4, 6, 20]])
    shares, truth = (table / table.sum()).ravel(), metrics.precision_recall_f1(table, average="macro")[2]
    held = 0
    for _ in range(400):
        cells = random.choice(9, 150, p=shares)
        target, pred = np.divmod(cells, 3)

        def score(rows, groups, target=target, pred=pred):
            return {"f1": metrics.precision_recall_f1(
                metrics.confusion(target[rows], pred[rows], 3), average="macro")[2]}  # fmt: skip

        low, high = percentile_interval(bootstrap(score, 150, draws=150)["f1"], 150)
        held += low <= truth <= high
    assert 0.92 <= held / 400 <= 0.98


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
