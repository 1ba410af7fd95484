"""Work shared among processes: in order, with the errors of the work, and without a hang when one dies."""

from __future__ import annotations

import os
import signal
import time

import pytest

from xdpx.datasets import workers
from xdpx.datasets.workers import Crew, WorkerDied


def double(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    time.sleep(0.002 * (number % 3))
    return 2 * number


def process(_number: int) -> int:
    return os.getpid()


def die(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "available_cores", lambda: 4)


def test_results_come_in_order() -> None:
    with Crew(double, workers=2) as crew:
        assert list(crew.map(range(40))) == [2 * number for number in range(40)]
        assert list(crew.map(range(3))) == [0, 2, 4]


@pytest.mark.parametrize(("count", "workers"), [(2, 4), (50, 1)])
def test_little_work_and_one_worker_stay_in_this_process(count: int, workers: int) -> None:
    with Crew(process, workers=workers) as crew:
        assert set(crew.map(range(count))) == {os.getpid()}


def test_an_error_of_the_work_arrives() -> None:
    with Crew(double, workers=2) as crew, pytest.raises(ValueError, match="-3 is negative"):
        list(crew.map([1, 2, 3, -3, 4]))


def test_a_killed_process_is_noticed() -> None:
    with Crew(die, workers=2) as crew, pytest.raises(WorkerDied, match="was killed"):
        list(crew.map(range(20)))


def test_items_are_not_read_far_ahead() -> None:
    read = []
    with Crew(double, workers=2) as crew:
        results = crew.map(read.append(number) or number for number in range(100))
        next(iter(results))
        assert len(read) <= 2 * workers.AHEAD + workers.FEW
