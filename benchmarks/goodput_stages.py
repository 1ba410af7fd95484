"""Where the time of a restart goes: `install` makes functions on its path record when they end.

A stage that ends appends `name<TAB>end<TAB>cpu seconds` to a file of its process in the folder $TRACE. Times are from
`time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

TRACE = "XDPX_GOODPUT_TRACE"
"""Variable with the folder of the trace; if it is not set, nothing is recorded."""

ENDED, STARTED = "found, and all ended", "started"
OF_LAUNCHER = {"xdpx.launch.local:_Processes.wait": ENDED}
OF_X_TRAIN = {
    "xdpx.runs.devices:join": "joined",
    "xdpx.runs.training:_Training.begin": "restored",
    "xdpx.runs.training:_Training.settle": "settled",
    "xdpx.runs.training:_Training.callbacks": "callbacks",
}
OF_EXPERIMENT = {
    "xdpx.experiments.running.parts:build_parts": "joined",
    "xdpx.experiments.running.training:_Training.begin": "restored",
    "xdpx.experiments.running.training:_Training.settle": "settled",
    "xdpx.experiments.running.training:_Training.callbacks": "callbacks",
}
FIRST = "first update"
ORDER = (ENDED, STARTED, "joined", "restored", "settled", "callbacks", FIRST)
"""The stages of a restart. Each begins when the previous one has ended on all processes."""


@dataclass(frozen=True)
class Stage:
    """A stage of one process: its name, its end, and its CPU seconds."""

    name: str
    end: float
    cpu: float


def install(stages: Mapping[str, str]) -> None:
    """Make the functions of some stages record their times, if a trace is wanted."""
    if TRACE not in os.environ:
        return
    for path, name in stages.items():
        module, _, words = path.partition(":")
        owner: Any = import_module(module)
        *holders, last = words.split(".")
        for holder in holders:
            owner = getattr(owner, holder)
        setattr(owner, last, _timed(getattr(owner, last), name))


def tell(name: str, cpu: float) -> None:
    """Record that a stage of this process has ended."""
    if TRACE in os.environ:
        with Path(os.environ[TRACE], f"stages-{os.getpid()}.tsv").open("a") as file:
            file.write(f"{name}\t{time.monotonic():.4f}\t{cpu:.4f}\n")


def _timed(work: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(work)
    def timed(*args: Any, **options: Any) -> Any:
        cpu = time.process_time()
        try:
            return work(*args, **options)
        finally:
            tell(name, time.process_time() - cpu)

    return timed


def read(folder: Path) -> list[Stage]:
    """Return all recorded stages."""
    lines = [line.split("\t") for path in folder.glob("stages-*.tsv") for line in path.read_text().splitlines()]
    return [Stage(name, float(end), float(cpu)) for name, end, cpu in lines]


def after(stages: Sequence[Stage], moment: float) -> dict[str, tuple[float, float]]:
    """Return (seconds, CPU seconds of all processes) of each stage of the restart after a fault; {} if none ended.

    Args:
        stages: all recorded stages.
        moment: time of the fault.
    """
    ends = sorted(stage.end for stage in stages if stage.name == ENDED and stage.end > moment)
    if not ends:
        return {}
    until = ends[1] if len(ends) > 1 else math.inf
    found, before = {ENDED: (ends[0] - moment, 0.0)}, ends[0]
    for name in ORDER[1:]:
        ended = [stage for stage in stages if stage.name == name and ends[0] < stage.end <= until]
        if not ended:
            return {}
        last = max(stage.end for stage in ended)
        found[name] = last - before, sum(stage.cpu for stage in ended)
        before = last
    return found


def told(restarts: Sequence[Mapping[str, tuple[float, float]]]) -> str:
    """Return the medians of some restarts as text: `started 0.12 (0.05 CPU), joined 0.20 (0.07 CPU), ...`."""
    parts = []
    for name in ORDER:
        seconds = median(each[name][0] for each in restarts)
        cpu = median(each[name][1] for each in restarts)
        parts.append(f"{name} {seconds:.2f}" + (f" ({cpu:.2f} CPU)" if cpu else ""))
    return ", ".join(parts)
