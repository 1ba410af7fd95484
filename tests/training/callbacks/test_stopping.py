from types import SimpleNamespace
from typing import Any

import pytest

from xdpx.training.callbacks.stopping import Stopping, StopRules, StopWhenAsked
from xdpx.training.loop import Session, Step
from xdpx.training.preemption import Preemption
from xdpx.training.progress import Progress


class Watched:
    """Feeds scores and logged rows to the callback, step by step."""

    def __init__(self, rules: StopRules) -> None:
        self.logging = SimpleNamespace(row={}, logged_step=0)
        self.stopping = Stopping(rules, self.logging)  # type: ignore[arg-type]
        self.progress = Progress()

    def step(self, number: int, *, score: float | None = None, **row: float) -> str | None:
        self.progress.num_updates = number
        if score is not None:
            self.progress.take_score(score, ascending=True)
        if row:
            self.logging.row, self.logging.logged_step = row, number
        session = Session(None, None, self.progress, 999, 999)  # type: ignore[arg-type]
        stop = self.stopping.on_step(session, Step(number, None, {}, None))  # type: ignore[arg-type]
        return stop.reason if stop else None


def test_it_stops_when_no_score_was_better_for_longer_than_the_tolerance() -> None:
    watched = Watched(StopRules(tolerance=20))
    assert watched.step(10, score=0.5) is None
    assert watched.step(20, score=0.4) is None
    assert watched.step(30, score=0.5) is None
    assert watched.step(35) is None
    assert watched.step(40, score=0.4) == "no better score for 30 steps (tolerance 20); the best was at step 10"


def test_tolerance_waits_for_min_steps_and_for_the_warm_up() -> None:
    for rules in (StopRules(tolerance=1, min_steps=50), StopRules(tolerance=1, warmup=50)):
        watched = Watched(rules)
        assert watched.step(10, score=0.5) is None
        assert watched.step(40, score=0.4) is None
        assert watched.step(50, score=0.4) is not None


def test_scores_that_are_all_nan_run_out_of_tolerance_too() -> None:
    watched = Watched(StopRules(tolerance=15))
    assert watched.step(10, score=float("nan")) is None
    assert watched.step(20, score=float("nan")) is not None


def test_a_warm_up_that_begins_below_min_lr_does_not_stop_but_coming_back_to_it_does() -> None:
    watched = Watched(StopRules(min_lr=0.1))
    rates = [0.05, 0.1, 0.2, 0.15, 0.1]
    reasons = [watched.step(number, loss=1.0, lr=rate) for number, rate in enumerate(rates, start=1)]
    assert reasons[:4] == [None] * 4
    assert reasons[4] == "the learning rate 0.1 reached min_lr 0.1"


def test_a_high_loss_stops_only_when_logged_three_times_in_a_row() -> None:
    watched = Watched(StopRules(max_loss=5.0))
    reasons = [watched.step(number, loss=loss) for number, loss in enumerate([6.0, 6.0, 1.0, 6.0, 6.0, 6.0], start=1)]
    assert reasons[:5] == [None] * 5
    assert "max_loss 5 3 times in a row" in str(reasons[5])


def test_a_row_is_counted_once_although_it_stays_visible() -> None:
    watched = Watched(StopRules(max_loss=5.0))
    assert watched.step(10, loss=6.0) is None
    assert [watched.step(number) for number in range(11, 20)] == [None] * 9


def test_counters_survive_a_resume() -> None:
    before, after = Watched(StopRules(max_loss=5.0)), Watched(StopRules(max_loss=5.0))
    before.step(1, loss=6.0)
    before.step(2, loss=6.0)
    after.stopping.load_state_dict(before.stopping.state_dict())
    assert after.step(3, loss=6.0) is not None


@pytest.mark.parametrize("received", [None, "SIGTERM"])
def test_a_signal_stops_the_run_unfinished(received: str | None) -> None:
    preemption = Preemption()
    preemption.received = received
    step: Any = Step(7, None, {}, None)  # type: ignore[arg-type]
    stop = StopWhenAsked(preemption).on_step(None, step)  # type: ignore[arg-type]
    assert (stop is None) == (received is None)
    if stop is not None:
        assert not stop.finished
        assert stop.reason == "interrupted by SIGTERM after step 7"


def test_where_the_run_is_to_go_on_after_a_signal_it_is_saved_once() -> None:
    preemption, asked = Preemption(), list[int]()
    step: Any = Step(7, None, {}, None)  # type: ignore[arg-type]
    saving: Any = SimpleNamespace(ask=lambda: asked.append(1))
    callback = StopWhenAsked(preemption, any_asked=lambda told, number: number == 7, saving=saving)
    assert [callback.on_step(None, step) for _ in range(2)] == [None, None]  # type: ignore[arg-type]
    assert asked == [1]
