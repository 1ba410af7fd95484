from pathlib import Path
from typing import Any

import pytest

from xdpx.reports.windows import Stopwatch
from xdpx.training.callbacks import plotting
from xdpx.training.callbacks.inspecting import Inspecting
from xdpx.training.callbacks.plotting import Plotting
from xdpx.training.loop import Callback, Session, Step, fit
from xdpx.training.progress import Progress

pytestmark = pytest.mark.usefixtures("figures")


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
    callback.on_told()


def test_figures_are_drawn_after_evaluations_and_at_the_end(engine: Any, groups: Any, now: list[float]) -> None:
    drawn: list[int] = []
    figures = Plotting(lambda: drawn.append(1), Stopwatch())
    now[0] += plotting.SECONDS_BEFORE_FIRST
    train(engine, groups, figures)
    assert len(drawn) == 4


def test_a_run_of_a_few_seconds_is_drawn_once_at_its_end(engine: Any, groups: Any, now: list[float]) -> None:
    drawn: list[int] = []
    train(engine, groups, Plotting(lambda: drawn.append(1), Stopwatch()))
    assert len(drawn) == 1


def test_slow_drawing_is_done_less_often_but_always_at_the_end(engine: Any, groups: Any, now: list[float]) -> None:
    drawn: list[float] = []

    def slow() -> None:
        drawn.append(now[0])
        now[0] += 5.0

    figures = Plotting(slow, Stopwatch(lambda: 0.0))
    now[0] = 60.0
    train(engine, groups, figures)
    assert drawn == [60.0, 65.0]


def test_a_figure_that_fails_is_a_warning(
    engine: Any, groups: Any, now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such font")

    figures = Plotting(broken, Stopwatch())
    now[0] += plotting.SECONDS_BEFORE_FIRST
    train(engine, groups, figures)
    assert capsys.readouterr().err.count("RuntimeError: no such font") == 4


def test_gradients_are_noted_as_often_as_asked_and_drawn_where_the_model_was_scored(
    engine: Any, groups: Any, tmp_path: Path
) -> None:
    train(engine, groups, Inspecting(str(tmp_path), "svg", Stopwatch(), interval=3))
    folder = tmp_path / "plots/gradients"
    assert {path.name for path in folder.iterdir()} == {"2.svg", "4.svg", "6.svg", "history.svg", "history.tsv"}
    rows = [line.split("\t") for line in (folder / "history.tsv").read_text().splitlines()]
    assert rows[0] == ["step", "weight", "mean", "largest", "zeros"]
    assert [row[0] for row in rows[1:]] == ["2", "3", "4", "6"]


def test_a_picture_of_gradients_that_fails_is_a_warning(
    engine: Any, groups: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(engine, groups, Inspecting(str(tmp_path), "no format", Stopwatch(), interval=100))
    assert capsys.readouterr().err.count("the gradients were not recorded: ValueError") == 4
