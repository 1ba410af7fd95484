"""What training has cost and gained since somebody last asked: sums of facts, and seconds that were spent training."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from xdpx.engines.base import Engine, Facts

PENDING_AT_MOST = 512
"""Facts that may wait on the device before they are fetched, so that a large `log_interval` holds no memory."""


class Diverged(FloatingPointError):
    """The loss, or the gradient's length, is no number any more. No later checkpoint may be trusted."""


@dataclass
class Window:
    """Sums over the updates since a row was last written."""

    num_updates: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, facts: Mapping[str, float]) -> None:
        """Add one update's facts, in order, in double precision: the same sums wherever a run was interrupted."""
        self.num_updates += 1
        for name, value in facts.items():
            # Of an update that was skipped under fp16 the gradient's length is no number.
            self.sums[name] = self.sums.get(name, 0.0) + (value if isfinite(value) else 0.0)

    def mean(self, name: str) -> float:
        """Give the mean over updates; 0 where the fact never came."""
        return self.sums.get(name, 0.0) / self.num_updates if self.num_updates else 0.0

    def ratio(self, name: str, count: str) -> float:
        """Give one sum over another; NaN where nothing was counted."""
        return self.sums.get(name, 0.0) / self.sums[count] if self.sums.get(count) else float("nan")

    @property
    def updates_per_second(self) -> float:
        """Give the speed in optimizer updates."""
        return self.num_updates / self.seconds if self.seconds > 0 else 0.0

    def per_second(self, name: str) -> float:
        """Give the sum per second of training."""
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
        """Give the seconds since the last lap."""
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


class Ledger:
    """Collects the facts of updates without waiting for the device, and settles them when somebody needs numbers.

    Args:
        windows: names of the readers; each has its own `Window`, and empties it by `take`.
        may_overflow: gradients may overflow now and then (fp16): such an update was skipped, and that is no fault.
    """

    def __init__(self, engine: Engine, *, windows: tuple[str, ...], may_overflow: bool = False) -> None:
        self.stopwatch = Stopwatch()
        self.last: dict[str, float] = {}
        self._engine = engine
        self._may_overflow = may_overflow
        self._windows = {name: Window() for name in windows}
        self._pending: list[tuple[int, Facts]] = []

    def add(self, number: int, facts: Facts) -> None:
        """Note the facts of update `number`."""
        self._pending.append((number, facts))
        if len(self._pending) >= PENDING_AT_MOST:
            self.settle()

    def settle(self) -> None:
        """Fetch what waits on the device, in one go.

        Raises:
            Diverged: a loss or a gradient's length is NaN or infinite.
        """
        pending, self._pending = self._pending, []
        flat = {f"{index} {name}": value for index, (_, facts) in enumerate(pending) for name, value in facts.items()}
        numbers = self._engine.facts_to_host(flat) if flat else {}
        for index, (number, facts) in enumerate(pending):
            self._enter(number, {name: numbers[f"{index} {name}"] for name in facts})
        seconds = self.stopwatch.lap()
        for window in self._windows.values():
            window.seconds += seconds

    def _enter(self, number: int, facts: dict[str, float]) -> None:
        finite = isfinite(facts.get("loss_sum", 0.0)) and (isfinite(facts.get("grad_norm", 0.0)) or self._may_overflow)
        if not finite:
            raise Diverged(_report(number, facts, self.last))
        for window in self._windows.values():
            window.add(facts)
        self.last = facts

    def take(self, name: str) -> Window:
        """Settle, and give and empty the window of one reader."""
        self.settle()
        window, self._windows[name] = self._windows[name], Window()
        return window

    def peek(self, name: str) -> Window:
        """Settle, and look at the window of one reader."""
        self.settle()
        return self._windows[name]

    def state_dict(self) -> dict[str, Any]:
        """Give the windows as plain values, settled."""
        self.settle()
        return {"windows": {name: asdict(window) for name, window in self._windows.items()}, "last": dict(self.last)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._windows = {name: Window(**saved["windows"][name]) for name in self._windows}
        self.last = dict(saved["last"])


def _report(number: int, facts: Mapping[str, float], before: Mapping[str, float]) -> str:
    shown = ", ".join(f"{name} {value:g}" for name, value in sorted(facts.items()))
    last = ", ".join(f"{name} {value:g}" for name, value in sorted(before.items())) or "nothing"
    return (
        f"training diverged: the loss or gradient of step {number} is no number ({shown}). Before it: {last}. "
        "Nothing was saved after it. Lower learning_rate, lengthen the warm-up, set clip_norm, or train without fp16."
    )
