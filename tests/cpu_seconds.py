"""The cost of tests: CPU seconds of every file and room, including the processes they start, against the budgets.

On a busy machine a test takes more wall time, but hardly more CPU time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.budgets import BUDGETS
from tests.tiers import LONG

ROOT = Path(__file__).parents[1]
SHARE_OVER = 1.5
"""Tolerance for differences between machines: a room is reported if it takes this many times its budget."""


def cpu_seconds() -> float:
    """Return the user and system CPU seconds of this process and its finished children."""
    return sum(os.times()[:4])


def room_of(file: str) -> str:
    """Return the room of a test file: the longest name with a budget that is a prefix of its path."""
    rooms = [room for room in BUDGETS if file.startswith(f"tests/{room}/")]
    return max(rooms, key=len, default="other")


class CpuSeconds:
    """Counts CPU seconds per test file, in all worker processes, and prints the table at the end."""

    def __init__(self, *, files_shown: int) -> None:
        self.files_shown = files_shown
        self.begun = cpu_seconds()
        self.of_files: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Start counting before the fixtures of a test."""
        self.begun = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Add the CPU seconds since the last report to the report of a test, which may be sent to another process."""
        report = yield
        now = cpu_seconds()
        report.cpu_seconds, self.begun = now - self.begun, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the reports, in the process that prints."""
        self.of_files[report.nodeid.split("::")[0]] += getattr(report, "cpu_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and name every room that is far above its budget."""
        rooms: Counter[str] = Counter()
        for file, seconds in self.of_files.items():
            rooms[room_of(file)] += seconds
        if self.files_shown:
            terminalreporter.section(f"CPU seconds: {sum(rooms.values()):.0f}")
            for name, seconds in rooms.most_common():
                terminalreporter.write_line(f"{seconds:8.1f}  {name}, budget {BUDGETS.get(name, 0)}")
            for name, seconds in self.of_files.most_common(self.files_shown):
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        for name, budget in BUDGETS.items() if not LONG else ():  # they are those of the short form
            if rooms[name] > SHARE_OVER * budget:
                terminalreporter.write_line(
                    f"tests/{name} took {rooms[name]:.0f} CPU seconds; its budget in tests/budgets.py is {budget}. "
                    "Make a test cheaper, or say why the room needs more.",
                    yellow=True,
                )
