"""The line that says early how long a training will take."""

from __future__ import annotations

from typing import Any

import pytest

from xdpx.training.callbacks import estimating
from xdpx.training.callbacks.estimating import Estimating
from xdpx.training.loop import Callback, Session, Step, fit
from xdpx.training.progress import Progress


def lines(
    engine: Any, groups: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> list[str]:
    """Return what is told in six updates of so many seconds."""
    now = [0.0]
    monkeypatch.setattr(estimating.time, "monotonic", lambda: now[0])

    class Clock(Callback):
        def on_step(self, session: Session, step: Step) -> None:
            now[0] += 100.0 if step.number == 1 else seconds

    session = Session(engine, engine.start(0), Progress(), 6, 6)
    fit(session, groups(), [Clock(), Estimating(lambda: "1 GiB of memory")])
    return [line for line in capfd.readouterr().err.splitlines() if "updates/s" in line]


def test_the_time_to_go_is_told_once_and_the_first_update_does_not_count(
    engine: Any, groups: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = lines(engine, groups, capfd, monkeypatch, seconds=30.0)
    assert told == [
        "| step 2: 0.0333 updates/s; 4 to go, about 2 min 00 s without further evaluations; 1 GiB of memory so far"
    ]


def test_a_training_of_a_few_seconds_is_not_estimated(
    engine: Any, groups: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lines(engine, groups, capfd, monkeypatch, seconds=0.5) == []
