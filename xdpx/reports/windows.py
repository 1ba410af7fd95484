"""Sums of what training gave over some updates, and the seconds that were spent training: what rows of logs show."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite


@dataclass
class Window:
    """Sums over the updates since a row was last written.

    Attributes:
        num_updates: how many there were.
        seconds: spent training.
        sums: of the facts of each update.
        recorded: sum and count of the numbers that came at any time, not once per update.
        nonfinite: the updates that were taken although their loss or gradient is NaN or infinite.
    """

    num_updates: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    recorded: dict[str, tuple[float, int]] = field(default_factory=dict)
    nonfinite: list[int] = field(default_factory=list)

    def add(self, facts: Mapping[str, float]) -> None:
        """Add one update's facts, in order, in double precision: the same sums wherever a run was interrupted."""
        self.num_updates += 1
        for name, value in facts.items():
            # Of an update that was skipped under fp16 the gradient's length is NaN or infinite; a loss that is shows.
            self.sums[name] = self.sums.get(name, 0.0) + (value if isfinite(value) or name == "loss_sum" else 0.0)

    def join(self, other: Window) -> None:
        """Add the updates of another window, which came after."""
        self.num_updates += other.num_updates
        self.seconds += other.seconds
        self.nonfinite += other.nonfinite
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.record(other.recorded)

    def record(self, sums: Mapping[str, tuple[float, int]]) -> None:
        """Add numbers that came at any time, each as its sum and count."""
        for name, (total, count) in sums.items():
            before = self.recorded.get(name, (0.0, 0))
            self.recorded[name] = (before[0] + total, before[1] + count)

    def mean(self, name: str) -> float:
        """Return the mean over updates; 0 where the fact never came."""
        return self.sums.get(name, 0.0) / self.num_updates if self.num_updates else 0.0

    def ratio(self, name: str, count: str) -> float:
        """Return one sum over another; NaN where nothing was counted."""
        return self.sums.get(name, 0.0) / self.sums[count] if self.sums.get(count) else float("nan")

    @property
    def updates_per_second(self) -> float:
        """The speed in optimizer updates."""
        return self.num_updates / self.seconds if self.seconds > 0 else 0.0

    def per_second(self, name: str) -> float:
        """Return the sum per second of training."""
        return self.sums.get(name, 0.0) / self.seconds if self.seconds > 0 else 0.0


class Stopwatch:
    """Seconds spent training. Monotonic: a clock that is set back or forward does not matter."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: float | None = None

    def start(self) -> None:
        """Begin to count."""
        self._last = self._clock()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        now = self._clock()
        seconds = now - (self._last if self._last is not None else now)
        self._last = now
        return seconds

    @contextmanager
    def paused(self) -> Generator[None]:
        """Do not count what happens inside: evaluating, saving, drawing."""
        begun = self._clock()
        yield
        if self._last is not None:
            self._last += self._clock() - begun
