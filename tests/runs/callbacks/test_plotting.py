from typing import Any

import pytest

from xdpx.reports.windows import Stopwatch
from xdpx.runs.callbacks import plotting
from xdpx.runs.callbacks.inspecting import Inspecting
from xdpx.runs.callbacks.plotting import Plotting
from xdpx.trainer.loop import Callback, Session, Step, fit
from xdpx.trainer.progress import Progress


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only a test moves."""
    time = [0.0]
    monkeypatch.setattr(plotting.time, "monotonic", lambda: time[0])
    return time


class Scored(Callback):
    """Every second step was evaluated."""

    def on_step(self, session: Session, step: Step) -> None:
        if step.number % 2 == 0:
            session.progress.take_score(1.0, ascending=True)


def train(engine: Any, groups: Any, callback: Callback) -> None:
    fit(Session(engine, engine.start(0), Progress(), 6, 6), groups(), [Scored(), callback])


def test_figures_are_drawn_after_evaluations_and_at_the_end(engine: Any, groups: Any, now: list[float]) -> None:
    drawn: list[int] = []
    train(engine, groups, Plotting(lambda: drawn.append(1), Stopwatch()))
    assert len(drawn) == 4


def test_slow_drawing_is_done_less_often_but_always_at_the_end(engine: Any, groups: Any, now: list[float]) -> None:
    drawn: list[float] = []

    def slow() -> None:
        drawn.append(now[0])
        now[0] += 5.0

    train(engine, groups, Plotting(slow, Stopwatch(lambda: 0.0)))
    assert drawn == [0.0, 5.0]


def test_a_figure_that_fails_is_a_warning(
    engine: Any, groups: Any, now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such font")

    train(engine, groups, Plotting(broken, Stopwatch()))
    train(engine, groups, Inspecting(broken, Stopwatch()))
    assert capsys.readouterr().err.count("RuntimeError: no such font") == 7


def test_gradients_of_evaluated_steps_are_handed_on_by_name(engine: Any, groups: Any) -> None:
    seen: dict[int, list[str]] = {}
    train(engine, groups, Inspecting(lambda sizes, step: seen.update({step: list(sizes)}), Stopwatch()))
    assert seen == {2: ["weight"], 4: ["weight"], 6: ["weight"]}
