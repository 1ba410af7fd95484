"""What the system says of a process of this machine: gone, stopped, at work, or waiting. Linux only; else unknown."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Life = Literal["gone", "stopped", "traced", "alive", "unknown"]


class ProcessFacts(NamedTuple):
    """A look at a process.

    Attributes:
        life: `stopped` by SIGSTOP or its like, `traced` when a debugger holds it.
        cpu_seconds: that it has used so far.
    """

    life: Life
    cpu_seconds: float = 0.0


def look_at(pid: int, started: int) -> ProcessFacts:
    """Return the facts of a process, `gone` when another one has its id by now.

    Args:
        pid: its id.
        started: what `owners.started_at` gave for it; 0 where nobody tells, and then nothing is known.
    """
    if not started:
        return ProcessFacts("unknown")
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")  # a fact of the kernel
    except OSError:
        return ProcessFacts("gone")
    fields = text.rpartition(")")[2].split()
    if int(fields[19]) != started or fields[0] in {"Z", "X"}:
        return ProcessFacts("gone")
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    life: Life = "stopped" if fields[0] == "T" else "traced" if fields[0] == "t" else "alive"
    return ProcessFacts(life, cpu_seconds)


def wants_to_run(pid: int) -> bool:
    """Tell whether a thread of a process waits for nothing but the processor."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it ended meanwhile
            states.append(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0])
    return "R" in states
