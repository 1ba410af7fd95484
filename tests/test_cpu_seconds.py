"""What tests cost is counted in CPU seconds, room by room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.budgets import BUDGETS
from tests.cpu_seconds import CpuSeconds, cpu_seconds, room_of

HERE = Path(__file__).parent


def test_every_room_has_a_budget_and_every_budget_a_room() -> None:
    rooms = {path.parent.relative_to(HERE).as_posix() for path in HERE.rglob("test_*.py")} - {"."}
    assert {room for room in rooms if room_of(f"tests/{room}/test_it.py") == "other"} == set()
    assert {room for room in BUDGETS if not (HERE / room).is_dir()} == set()
    assert room_of("tests/engines/spmd/test_it.py") == "engines/spmd"


def test_what_a_process_that_was_started_computes_is_counted() -> None:
    before = cpu_seconds()
    code = "import time\nwhile time.process_time() < 0.4: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert cpu_seconds() - before >= 0.3


@pytest.mark.parametrize(("share", "named"), [(1.0, False), (2.0, True)])
def test_a_room_that_takes_much_more_than_its_budget_is_named(share: float, named: bool) -> None:
    counting, lines = CpuSeconds(files_shown=0), []
    seconds = share * BUDGETS["loaders"]
    counting.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/loaders/test_it.py::test", cpu_seconds=seconds))
    counting.pytest_terminal_summary(SimpleNamespace(write_line=lambda line, **_: lines.append(line)))
    assert ["tests/loaders took" in line for line in lines] == [True] * named
