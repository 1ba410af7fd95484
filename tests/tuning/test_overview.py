"""The picture of a search shows the trials between which it decided."""

from __future__ import annotations

from xdpx.search.trials import Trial
from xdpx.tuning.overview import _limits


def test_a_few_trials_that_diverged_do_not_squeeze_all_others_into_one_line() -> None:
    from matplotlib.figure import Figure

    losses = [0.59, 0.65, 0.69, 0.69, 0.7, 0.72, 1.1, 250.0, 1e7, 1e13]
    axes = Figure().subplots()
    _limits(axes, [Trial(number, {}, -1, history=[(64, loss)]) for number, loss in enumerate(losses)], 100)
    low, high = axes.get_ylim()
    assert low < 0.59
    assert 1.1 < high < 3


def test_a_reference_that_is_better_than_all_trials_is_within_the_axis() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    trials = [Trial(number, {}, history=[(64, 0.5 + number / 100)]) for number in range(4)]
    _limits(axes, trials, 100, [[(64, 0.6), (128, 0.9)]])
    low, high = axes.get_ylim()
    assert low < 0.5
    assert high > 0.9
