"""What tests cost: CPU seconds of every file and room, with the processes they start, beside what each room may cost.

A machine that has other things to do makes a test take longer, but hardly makes it compute longer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.budgets import BUDGETS

ROOT = Path(__file__).parents[1]
SHARE_OVER = 1.5
"""Machines differ by so much: a room is spoken of when it takes this many times its budget."""


def cpu_seconds() -> float:
    """Return the CPU seconds, of user and system, that this process took, and its children that have ended."""
    return sum(os.times()[:4])


def room_of(file: str) -> str:
    """Return the room with a budget in which a test file is: the longest name that its path begins with."""
    rooms = [room for room in BUDGETS if file.startswith(f"tests/{room}/")]
    return max(rooms, key=len, default="other")


class CpuSeconds:
    """Count CPU seconds per test file, wherever it runs, and print the table at the end."""

    def __init__(self, *, files_shown: int) -> None:
        self.files_shown = files_shown
        self.begun = cpu_seconds()
        self.of_files: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Begin before the fixtures of a test."""
        self.begun = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Write into the report of a test, which may go to another process, what it took since the last one."""
        report = yield
        now = cpu_seconds()
        report.cpu_seconds, self.begun = now - self.begun, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up, in the process that prints."""
        self.of_files[report.nodeid.split("::")[0]] += getattr(report, "cpu_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was counted, and name every room that took much more than it may."""
        rooms: Counter[str] = Counter()
        for file, seconds in self.of_files.items():
            rooms[room_of(file)] += seconds
        if self.files_shown:
            terminalreporter.section(f"CPU seconds: {sum(rooms.values()):.0f}")
            for name, seconds in rooms.most_common():
                terminalreporter.write_line(f"{seconds:8.1f}  {name}, budget {BUDGETS.get(name, 0)}")
            for name, seconds in self.of_files.most_common(self.files_shown):
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        for name, budget in BUDGETS.items():
            if rooms[name] > SHARE_OVER * budget:
                terminalreporter.write_line(
                    f"tests/{name} took {rooms[name]:.0f} CPU seconds; its budget in tests/budgets.py is {budget}. "
                    "Make a test cheaper, or say why the room needs more.",
                    yellow=True,
                )
