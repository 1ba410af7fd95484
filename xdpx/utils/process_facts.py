"""Processes of this machine: their state, from /proc, unknown except on Linux; and signals to child processes."""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, NamedTuple

Life = Literal["gone", "stopped", "traced", "alive", "unknown"]


class ProcessFacts(NamedTuple):
    """The state of a process at one moment.

    Attributes:
        life: `stopped` by SIGSTOP or similar, `traced` if a debugger has stopped it.
        cpu_seconds: CPU time used so far.
    """

    life: Life
    cpu_seconds: float = 0.0


def look_at(pid: int, started: int) -> ProcessFacts:
    """Return the facts of a process; `gone` if its id now belongs to another process.

    Args:
        pid: its id.
        started: its start time as returned by `owners.started_at`; with 0 the result is `unknown`.
    """
    if not started:
        return ProcessFacts("unknown")
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")  # not through io: only /proc
    except OSError:
        return ProcessFacts("gone")
    fields = text.rpartition(")")[2].split()
    if int(fields[19]) != started or fields[0] in {"Z", "X"}:
        return ProcessFacts("gone")
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    life: Life = "stopped" if fields[0] == "T" else "traced" if fields[0] == "t" else "alive"
    return ProcessFacts(life, cpu_seconds)


def wants_to_run(pid: int) -> bool:
    """Return whether any thread of a process is running or runnable."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it ended meanwhile
            states.append(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0])
    return "R" in states


def send_signal(process: BaseProcess, number: int) -> None:
    """Send a signal to a child process, unless it has ended."""
    if process.pid and process.is_alive():
        os.kill(process.pid, number)
