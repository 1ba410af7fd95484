"""Measure the time and memory a training would take on this machine by running a few updates. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from xdpx.config.loading import Run
from xdpx.runs.assembly import build_parts
from xdpx.runs.parameters import TrainParameters
from xdpx.training.progress import Progress

MOST_UPDATES = 8
SECONDS_MEASURED = 5.0
"""Seconds measured, from the end of the first update on, which is slower than the others."""


@dataclass(frozen=True)
class Outlook:
    """Estimate of the time and memory of a training.

    Attributes:
        updates: number of updates of the whole schedule.
        seconds_per_update: on this machine, median of a few.
        weights_bytes: size of a checkpoint with only the weights.
        state_bytes: size of a full checkpoint, to resume from.
        peak_bytes: peak memory so far, of the device or host named by `memory`.
    """

    updates: int
    seconds_per_update: float
    weights_bytes: int
    state_bytes: int
    peak_bytes: float
    memory: str

    @property
    def seconds(self) -> float:
        """Seconds of all updates together, without evaluations."""
        return self.updates * self.seconds_per_update


def look_ahead(run: Run) -> Outlook:
    """Measure a few updates of an x-train run, and discard them.

    Raises:
        ConfigError: the run cannot be built.
        OutOfMemory: an update needs more memory than there is.
    """
    from xdpx.engines.pytorch.memory import peak_bytes

    settings: TrainParameters = run.parameters("command")
    progress = Progress(group_size=settings.batch_size * settings.update_freq)
    parts = build_parts(run, settings, progress=progress, saved={})
    state = parts.engine.start(parts.seed)
    seconds: list[float] = []
    with closing(parts.groups(progress)) as groups:
        for _, group in groups:
            start = time.monotonic()
            state, facts = parts.engine.update(state, group)
            parts.engine.facts_to_host(facts)
            seconds.append(time.monotonic() - start)
            if len(seconds) >= min(MOST_UPDATES, parts.total) or sum(seconds[1:]) >= SECONDS_MEASURED:
                break
    peak, where = peak_bytes()
    return Outlook(
        parts.total, float(np.median(seconds[1:] or seconds)), _bytes_of(parts.engine.weights(state)),
        _bytes_of(parts.engine.snapshot(state)), peak, f"{where}memory",
    )  # fmt: skip


def _bytes_of(value: Any) -> int:
    """Return how many bytes the arrays within a value take."""
    if isinstance(value, Mapping):
        return sum(map(_bytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes_of, value))
    try:
        return int(value.nbytes)
    except AttributeError:  # a number or a text beside the arrays
        return 0
