"""An update that is not finite is taken again, told and kept, once, by whichever way it is noticed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xdpx.checkpoints.trusted import load_tensors
from xdpx.datasets.plan import Position
from xdpx.engines.origin import NonFiniteUpdate, Origin, TensorFacts
from xdpx.training.hunting import KEPT_UPDATES, Hunter
from xdpx.training.loop import Session
from xdpx.training.progress import Progress


class Engine:
    """Finds what it was told to find."""

    def __init__(self, origin: Origin | None) -> None:
        self.found, self.asked = origin, list[int]()
        self.hear_nonfinite: Any = None

    def origin(self, state: object, group: object, number: int) -> Origin | None:
        self.asked.append(number)
        return self.found

    def snapshot(self, state: object) -> dict[str, Any]:
        return {"num_updates": 3}


MADE = [TensorFacts("output", "float32", (2, 4), nan=8, smallest=float("nan"), largest=float("nan"), rows=(0, 1))]
ORIGIN = Origin("forward", "layer.3", "Block", made=MADE, rows=(0, 1))


def begun(folder: Path, updates: int, origin: Origin | None = ORIGIN) -> tuple[Hunter, Session, Engine]:
    engine = Engine(origin)
    session = Session(engine, None, Progress(), updates, updates)
    hunter = Hunter(str(folder))
    hunter.on_start(session)

    def groups() -> Generator[tuple[Position, list[dict[str, Any]]]]:
        for number in range(1, updates + 1):
            yield Position(), [{"id": np.array([number, number + 100]), "net_input": {"ids": np.ones((2, 3))}}]

    for number, _ in enumerate(hunter.groups(groups(), session), 1):
        session.progress.num_updates = number
    return hunter, session, engine


def test_the_error_that_ends_a_training_says_where_it_began(tmp_path: Path) -> None:
    hunter, session, engine = begun(tmp_path, 5)
    told = r"step 4 is bad. It began forward: 'layer.3' \(Block\) is the first"
    with pytest.raises(NonFiniteUpdate, match=told), hunter.ending(session):
        raise NonFiniteUpdate("step 4 is bad.", 4)
    assert engine.asked == [4]
    text = (tmp_path / "nonfinite" / "update-4.txt").read_text()
    assert "sample ids 4, 104" in text
    saved = load_tensors(str(tmp_path / "nonfinite" / "update-4.pt"))
    assert saved["number"] == 4
    assert saved["group"][0]["id"].tolist() == [4, 104]
    assert saved["state"] == {"num_updates": 3}


def test_an_engine_that_looks_is_answered_once(tmp_path: Path) -> None:
    _, _, engine = begun(tmp_path, 5)
    for number in (3, 5):
        engine.hear_nonfinite(number)
    assert engine.asked == [3]


def test_a_batch_that_is_not_kept_and_a_search_that_fails_never_hide_the_reason(tmp_path: Path) -> None:
    hunter, session, engine = begun(tmp_path, KEPT_UPDATES + 5)
    assert "its batch is not kept any more" in hunter.hunt(session, 5)
    assert engine.asked == []
    broken = SimpleNamespace(origin=lambda *parts: 1 / 0)
    session.engine = broken
    assert "was not taken again: ZeroDivisionError" in hunter.hunt(session, KEPT_UPDATES + 1)


def test_what_is_finite_the_second_time_is_said_to_be(tmp_path: Path) -> None:
    hunter, session, _ = begun(tmp_path, 2, origin=None)
    hunter.hunt(session, 2)
    assert "all of it is finite now" in (tmp_path / "nonfinite" / "update-2.txt").read_text()
