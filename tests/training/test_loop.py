from typing import Any

import pytest

from xdpx.training.loop import END, Callback, Interrupted, Session, Step, Stop, fit, take_steps
from xdpx.training.progress import Progress


class Recorder(Callback):
    def __init__(self, stop_at: int = 0, *, finished: bool = True) -> None:
        self.stop_at, self.finished, self.events = stop_at, finished, []

    def on_start(self, session: Session) -> None:
        self.events.append("start")

    def on_step(self, session: Session, step: Step) -> Stop | None:
        self.events.append(step.number)
        return Stop(f"asked at {self.stop_at}", self.finished) if step.number == self.stop_at else None

    def on_end(self, session: Session, stop: Stop) -> None:
        self.events.append(stop.reason)

    def close(self) -> None:
        self.events.append("closed")


def begin(engine: Any, *, until: int, progress: Progress | None = None, state: Any = None) -> Session:
    return Session(engine, engine.start(0) if state is None else state, progress or Progress(), until, until)


def test_resumed_from_a_snapshot_the_state_is_that_of_one_straight_run(engine: Any, groups: Any) -> None:
    straight = begin(engine, until=13)
    fit(straight, groups(), [])
    half = begin(engine, until=5)
    fit(half, groups(), [])
    rest = begin(engine, until=13, progress=half.progress, state=engine.restore(engine.snapshot(half.state)))
    fit(rest, groups((half.progress.epoch, half.progress.group)), [])
    assert rest.state == straight.state
    assert rest.progress == straight.progress


def test_every_callback_sees_the_step_at_which_another_asked_to_stop(engine: Any, groups: Any) -> None:
    first, second = Recorder(stop_at=2), Recorder()
    stop = fit(begin(engine, until=9), groups(), [first, second])
    assert stop == Stop("asked at 2")
    assert second.events == ["start", 1, 2, "asked at 2", "closed"]


def test_an_exception_closes_the_callbacks_but_does_not_call_their_end(engine: Any) -> None:
    recorder = Recorder()
    with pytest.raises(KeyError):
        fit(begin(engine, until=9), iter([(None, [{}])]), [recorder])
    assert recorder.events == ["start", "closed"]


def test_data_that_runs_out_ends_the_training_and_is_named(engine: Any, groups: Any) -> None:
    few = [next(each) for each in [groups()] for _ in range(3)]
    assert fit(begin(engine, until=9), few, []).reason == "the data ran out at step 3"


def test_no_group_is_taken_beyond_the_last_update(engine: Any, groups: Any) -> None:
    endless = groups()
    numbers = [step.number for step in take_steps(engine, engine.start(0), endless, after=4, until=6)]
    assert numbers == [5, 6]
    assert next(endless)[0].group == 3


def test_a_session_that_is_complete_already_ends_at_once_and_calls_the_end(engine: Any, groups: Any) -> None:
    recorder = Recorder()
    done = begin(engine, until=4, progress=Progress(num_updates=4))
    assert fit(done, groups(), [recorder]).reason == "reached step 4"
    assert recorder.events == ["start", "reached step 4", "closed"]


class Cut(Recorder):
    """Is cut short, once, at a step or at the end."""

    name = "cut"

    def __init__(self, at: int | str) -> None:
        super().__init__()
        self.at: int | str | None = at

    def on_step(self, session: Session, step: Step) -> Stop | None:
        self._raise_at(step.number)
        return super().on_step(session, step)

    def on_end(self, session: Session, stop: Stop) -> None:
        self._raise_at("end")
        super().on_end(session, stop)

    def _raise_at(self, place: int | str) -> None:
        if place == self.at:
            self.at = None
            raise Interrupted("a signal")


def test_a_step_that_is_cut_short_goes_on_where_it_was_in_the_next_stretch(engine: Any, groups: Any) -> None:
    before, cut, after = Recorder(stop_at=2), Cut(2), Recorder()
    session = begin(engine, until=9)
    assert fit(session, groups(), [before, cut, after]) == Stop("a signal", finished=False)
    assert (session.progress.cut_at, session.progress.cut_reason) == ("cut", "asked at 2")
    assert after.events == ["start", 1, "a signal", "closed"]
    rest = begin(engine, until=9, progress=Progress.from_dict(session.progress.as_dict()), state=session.state)
    before, cut, after = Recorder(stop_at=2), Cut(0), Recorder()
    assert fit(rest, groups((1, 2)), [before, cut, after]) == Stop("asked at 2")
    assert (before.events, after.events) == (["start", "asked at 2", "closed"], ["start", 2, "asked at 2", "closed"])
    assert rest.progress.cut_at == ""


def test_an_end_that_is_cut_short_comes_first_in_the_next_stretch_for_the_same_reason(engine: Any, groups: Any) -> None:
    before, cut, after = Recorder(stop_at=2), Cut("end"), Recorder()
    session = begin(engine, until=9)
    assert fit(session, groups(), [before, cut, after]) == Stop("a signal", finished=False)
    assert after.events[-2:] == cut.events[-2:] == ["a signal", "closed"]
    assert session.progress.cut_at == END
    rest = begin(engine, until=9, progress=session.progress, state=session.state)
    recorder = Recorder()
    assert fit(rest, groups((1, 2)), [recorder]) == Stop("asked at 2")
    assert recorder.events == ["start", "asked at 2", "closed"]
