from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.search.schedules import Budget, Move, Schedule
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Space, Values
from xdpx.search.trials import Order, Result, Trial, Trials
from xdpx.search.tuners import Random, Tuner

SPACE = {
    "learning_rate": {"type": "float", "values": [1e-5, 1e-2], "log": True},
    "width": {"type": "int", "values": [1, 64]},
}
OPTIONS = {
    "bracket": {"parallel": 8, "min_ref": 2, "cull_keep_ratio": 0.6},
    "hyperband": {"parallel": 4},
    "asha": {"parallel": 4},
    "one_epoch": {"parallel": 4},
    "full": {"parallel": 4},
}


def begun(schedule: str, *, trials: int = 24, **more: object) -> Search:
    options = {**OPTIONS[schedule], **more}
    return make_search(SPACE, budget=Budget(810, per_epoch=30), max_trials=trials, schedule=schedule, **options)  # type: ignore[arg-type]


def trained(order: Order) -> Result:
    """Train a trial whose score rises with its samples, towards an end that its values decide; some fail."""
    rng = random.Random(f"{order.values}")
    if rng.random() < 0.1:
        return Result(order.number, order.samples // 2, None, note="out of memory")
    asymptote, speed = rng.random(), rng.uniform(10, 300)
    history = [(at, asymptote - speed / (speed + at)) for at in range(order.begin + 10, order.samples + 1, 10)]
    return Result(order.number, order.samples, asymptote - speed / (speed + order.samples), history)


def finish(search: Search, rng: random.Random) -> Search:
    """Carry out the orders in an order of the worker's own."""
    while not search.finished:
        assert len(search.ready()) <= search.parallel
        search.tell(trained(rng.choice(search.ready())))
    return search


@pytest.mark.parametrize("schedule", OPTIONS)
def test_decisions_are_the_same_whichever_worker_is_faster(schedule: str) -> None:
    once, again = (finish(begun(schedule), random.Random(seed)) for seed in (1, 2))
    assert once.decisions == again.decisions
    assert once.orders == again.orders
    assert len(once.trials) == 24


@settings(max_examples=25, deadline=None)
@given(
    schedule=st.sampled_from(["hyperband", "asha", "one_epoch", "full"]), trials=st.integers(1, 30),
    parallel=st.integers(1, 9), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_search_ends_with_each_trial_decided(schedule: str, trials: int, parallel: int, seed: int) -> None:
    search = finish(begun(schedule, trials=trials, parallel=parallel, seed=seed), random.Random(seed))
    assert len(search.trials) == trials
    assert {trial.state for trial in search.trials} <= {"culled", "finished", "failed"}
    assert all(trial.samples <= 810 for trial in search.trials)
    assert all(order.begin < order.samples for order in search.orders)


def test_workers_are_served_by_the_clock_of_samples_and_a_long_order_blocks_nobody() -> None:
    search = begun("full", parallel=2, trials=6)
    assert [order.number for order in search.ready()] == [0, 1]
    search.tell(Result(1, 810, 0.5))  # on the clock, order 0 ends first
    assert [order.number for order in search.ready()] == [0]
    search.tell(Result(0, 810, 0.5))
    assert [order.number for order in search.ready()] == [2, 3]


def test_a_smaller_score_wins_when_minimizing() -> None:
    search = finish(begun("hyperband", direction="minimize"), random.Random(0))
    assert search.best is not None
    scores = [trial.best for trial in search.trials if trial.best is not None]
    assert search.best.best == min(scores)
    culled = [row for row in search.decisions if row.verdict == "culled" and row.samples == search.trials[0].samples]
    assert culled


def test_a_score_that_is_nan_counts_as_a_failed_trial() -> None:
    search = begun("full", trials=1)
    search.tell(Result(0, 810, float("nan")))
    assert [row.verdict for row in search.decisions] == ["begun", "failed"]
    assert search.best is None


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (Result(7, 810, 0.1), "order 7 was never issued"),
        (Result(0, 809, 0.1), "has seen 809 of 810 samples"),
        (Result(-1, 810, 0.1), "order -1 was never issued"),
    ],
)
def test_a_result_that_cannot_be_is_refused(result: Result, problem: str) -> None:
    search = begun("full", parallel=2)
    with pytest.raises(ValueError, match=problem):
        search.tell(result)
    search.tell(Result(1, 810, 0.1))
    with pytest.raises(ValueError, match="order 1 has a result already"):
        search.tell(Result(1, 810, 0.1))


def test_a_small_grid_is_gone_through_once_and_ends_the_search() -> None:
    space = {"a": {"type": "int", "values": [1, 3]}, "b": {"type": "categorical", "values": ["x", "y"]}}
    for tuner in ("grid", "random"):
        search = make_search(space, budget=Budget(10), max_trials=50, tuner=tuner, schedule="full", parallel=3)
        finish(search, random.Random(0))
        assert len(search.trials) == 6
        assert len({str(trial.values) for trial in search.trials}) == 6


def test_true_and_one_are_two_points_of_a_space() -> None:
    space = {"tie": {"type": "categorical", "values": [True, 1, False, 0]}}
    for tuner in ("grid", "random", "tpe"):
        search = make_search(space, budget=Budget(10), max_trials=50, tuner=tuner, schedule="full")
        finish(search, random.Random(0))
        assert len(search.trials) == 4


def test_options_that_nobody_knows_or_allows_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        begun("asha", eat=3, assess_start_step=1.5)
    assert {fault.key for fault in caught.value.faults} == {"eat", "assess_start_step"}
    with pytest.raises(ConfigError, match="Did you mean 'hyperband'"):
        make_search(SPACE, budget=Budget(10), max_trials=1, schedule="hyperbnad")


# ---- tuners and schedules of users


class Proposing(Tuner):
    """Proposes what it is given, once more for each trial."""

    points: Iterator[object]

    def propose(self, number: int, history: Sequence[Trial]) -> Values | None:
        return next(self.points)  # type: ignore[return-value]


class Moving(Schedule):
    """Returns what a function of the trials and `more` returns."""

    choose: Callable[[Trials, bool], object]

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        return type(self).choose(trials, more)  # type: ignore[return-value]


def searching(points: Sequence[object] = (), choose: Callable[[Trials, bool], object] | None = None) -> Search:
    """Begin a search with one of both in place of ours."""
    Proposing.points = iter(points)
    Moving.choose = staticmethod(choose or (lambda trials, more: Move(10, "ten") if more else None))
    tuner = Proposing if points else Random
    made = tuner(tuner.Parameters(), space=Space.read(SPACE))
    schedule = Moving(Moving.Parameters(), budget=Budget(100), parallel=1, max_trials=2)
    return Search(made.space, made, schedule, max_trials=2)


POINT = {"learning_rate": 1e-3, "width": 8}


@pytest.mark.parametrize(
    ("proposed", "told"),
    [
        ([1e-3, 8], "not a dict"),
        (False, "false, which is not a dict"),
        ({"learning_rate": 1e-3}, "width: is missing"),
        ({**POINT, "width": 65}, r"width: 65 is not in \[1, 64\]"),
        ({**POINT, "max_epoch": 9}, "max_epoch, which are not parameters of the space"),
    ],
)
def test_what_a_tuner_proposes_outside_of_the_space_is_refused(proposed: object, told: str) -> None:
    with pytest.raises(ConfigError, match=f"tuner: 'Proposing.propose' returns .*{told}.*, for trial 0"):
        searching([proposed])


def test_numbers_of_numpy_are_proposed_as_plain_ones_and_a_dict_may_be_used_again() -> None:
    again = dict(POINT)
    search = searching([{"learning_rate": np.float32(1e-3), "width": np.int64(3)}, again])
    assert type(search.trials[0].values["learning_rate"]) is float
    assert type(search.trials[0].values["width"]) is int
    search.tell(Result(0, 10, 0.5))
    again["width"] = 1
    assert search.trials[1].values == POINT


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (lambda trials, more: (10, "ten"), r"\(10, 'ten'\)"),
        (lambda trials, more: Move(33.3, "a third"), "33.3 samples, which is not a whole number"),
        (lambda trials, more: Move(101, "too far"), "a whole number from 1 to 100"),
        (lambda trials, more: Move(10, "always"), "a new trial where more is False"),
        (lambda trials, more: Move(10, "ten") if more else Move(20, "on", 0), "0, which is none of the trials"),
        (lambda trials, more: Move(10, "ten") if more else Move(10, "again", trials[1]), "it had 10 to reach"),
        (lambda trials, more: Move(10, "ten", trials[0] if trials else None), "trial 0 to 10 samples, but it had 10"),
    ],
)
def test_a_move_that_cannot_be_carried_out_is_refused(choose: Callable[[Trials, bool], object], told: str) -> None:
    with pytest.raises(ConfigError, match=f"schedule: 'Moving.next' returns .*{told}"):
        finish(searching(choose=choose), random.Random(1))


def test_a_trial_that_runs_is_not_culled() -> None:
    with pytest.raises(ConfigError, match="culls trial 0, which is running and not waiting"):
        begun("full").trials.cull(begun("full").trials[0], "of no use")
