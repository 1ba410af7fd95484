"""Which checkpoints go: a shelf in memory stands for that of a door."""

from __future__ import annotations

import pytest

from xdpx.checkpoints.retention import Shelf, in_order, prune


class Shelved:
    """Checkpoints by step; what is wrong with the newest, and what cannot be deleted."""

    def __init__(self, *steps: int, faults: tuple[str, ...] = (), stuck: tuple[int, ...] = ()) -> None:
        self.left, self.faults, self.stuck, self.read = list(steps), list(faults), stuck, list[int]()

    def prune(self, *stay: int, newest: int | None = None) -> list[str]:
        shelf = Shelf(tuple(self.left), str, self._look, self._discard)
        return prune(shelf, lambda order: stay, newest=newest)

    def _look(self, step: int) -> list[str]:
        self.read.append(step)
        return self.faults

    def _discard(self, step: int) -> None:
        if step in self.stuck:
            raise PermissionError(13, "not yours")
        self.left.remove(step)


def test_steps_are_deleted_oldest_first() -> None:
    assert in_order([30, 10, 20]) == [10, 20, 30]


def test_steps_beyond_the_newest_go_before_all_others() -> None:
    assert in_order([10, 20, 30, 40], newest=20) == [30, 40, 10, 20]


def test_what_is_not_to_stay_goes_and_the_newest_stays_in_any_case() -> None:
    shelved = Shelved(10, 20, 30, 40)
    assert shelved.prune(10, newest=30) == ["40", "20"]
    assert shelved.left == [10, 30]


def test_nothing_is_deleted_while_the_newest_is_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    shelved = Shelved(10, 20, faults=("model.pt: is cut short.",))
    assert shelved.prune() == []
    assert shelved.left == [10, 20]
    assert "20: model.pt: is cut short." in capsys.readouterr().err


def test_the_newest_is_not_read_back_for_nothing() -> None:
    shelved = Shelved(10, 20)
    assert shelved.prune(10) == []
    assert shelved.prune(10, 20) == []
    assert Shelved().prune() == []
    assert shelved.read == []


def test_one_that_cannot_be_deleted_is_told_and_the_others_go(capsys: pytest.CaptureFixture[str]) -> None:
    shelved = Shelved(10, 20, 30, stuck=(10,))
    assert shelved.prune() == ["20"]
    assert "10: could not be deleted (not yours)" in capsys.readouterr().err
