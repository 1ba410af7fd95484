"""Sums of training facts over a window of updates, and the seconds spent training, from which log rows are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite


@dataclass
class Window:
    """Sums over the updates since the last row was written.

    Attributes:
        num_updates: number of updates.
        seconds: spent training.
        sums: of the facts of each update.
        recorded: sum and count of numbers that are recorded at any time, not once per update.
        nonfinite: the updates that were applied although their loss or gradient is NaN or infinite.
    """

    num_updates: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    recorded: dict[str, tuple[float, int]] = field(default_factory=dict)
    nonfinite: list[int] = field(default_factory=list)

    def add(self, facts: Mapping[str, float]) -> None:
        """Add the facts of one update, in order, in double precision: interruptions do not change the sums."""
        self.num_updates += 1
        for name, value in facts.items():
            # An update skipped under fp16 has a NaN or infinite gradient norm; such losses and metrics are to be seen.
            self.sums[name] = self.sums.get(name, 0.0) + (value if isfinite(value) or name != "grad_norm" else 0.0)

    def join(self, other: Window) -> None:
        """Add the updates of a later window."""
        self.num_updates += other.num_updates
        self.seconds += other.seconds
        self.nonfinite += other.nonfinite
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.record(other.recorded)

    def record(self, sums: Mapping[str, tuple[float, int]]) -> None:
        """Add numbers that are recorded at any time, each as its sum and count."""
        for name, (total, count) in sums.items():
            before = self.recorded.get(name, (0.0, 0))
            self.recorded[name] = (before[0] + total, before[1] + count)

    def mean(self, name: str) -> float:
        """Return the mean over updates; 0 if the fact was never added."""
        return self.sums.get(name, 0.0) / self.num_updates if self.num_updates else 0.0

    def ratio(self, name: str, count: str) -> float:
        """Return one sum divided by another; NaN if the divisor is 0 or missing."""
        return self.sums.get(name, 0.0) / self.sums[count] if self.sums.get(count) else float("nan")

    @property
    def updates_per_second(self) -> float:
        """The speed in optimizer updates."""
        return self.num_updates / self.seconds if self.seconds > 0 else 0.0

    def per_second(self, name: str) -> float:
        """Return the sum per second of training."""
        return self.sums.get(name, 0.0) / self.seconds if self.seconds > 0 else 0.0


class Stopwatch:
    """Seconds spent training, by a monotonic clock: changes of the system time do not matter."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: float | None = None

    def start(self) -> None:
        """Start counting."""
        self._last = self._clock()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        now = self._clock()
        seconds = now - (self._last if self._last is not None else now)
        self._last = now
        return seconds

    @contextmanager
    def paused(self) -> Generator[None]:
        """Exclude the time spent inside: evaluating, saving, drawing."""
        begun = self._clock()
        try:
            yield
        finally:
            if self._last is not None:
                self._last += self._clock() - begun
