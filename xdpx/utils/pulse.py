"""The current phase of this process, recorded by its main thread and read by a watchdog thread that detects hangs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

LONG = math.inf
"""Patience with phases without a time limit: compiling, evaluating, saving, the code of users."""
DATA_PATIENCE = 20.0
"""Patience with a wait for data, in multiples of the patience with an update, because remote storage may be slow."""


DATA = "data"
"""The phase in which the host waits for data, or how its name begins."""

UNLIKE_OTHERS = f"{DATA} unlike that of other processes"
"""How the phase of a process begins that waits in vain, because others got other data: a restart leads there again."""

WAITING = "waiting for the device"
"""The phase in which the host waits for values from the device."""


@dataclass(frozen=True)
class Standing:
    """A snapshot of the phase of a process.

    Attributes:
        step: updates taken so far.
        phase: e.g. `update`.
        seconds: since the phase began, or since the last sign of life in it.
        allowed: seconds that the phase may take; infinite for no limit.
    """

    step: int = 0
    phase: str = "beginning"
    seconds: float = 0.0
    allowed: float = LONG

    @property
    def overdue(self) -> bool:
        """Whether the phase takes longer than allowed."""
        return self.seconds > self.allowed


class Pulse:
    """Tracks the phases of one process. The first phase of each kind has no time limit, because it may compile.

    Only the thread that called `begin` can change the phase; any thread may show a sign of life.

    Attributes:
        now: (phase, patience with it in multiples of the patience with an update).
        step: updates taken so far.
        thread: ident of the thread that is watched.
        spent: phase -> total seconds, since `begin`, without the current phase.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, step: int = 0) -> None:
        """Reset everything; the calling thread is watched from now on."""
        self.thread = threading.get_ident()
        self.step = step
        self.now: tuple[str, float] = ("beginning", LONG)
        self._since = self._entered = time.monotonic()
        self._longest: dict[str, float] = {}
        self.spent: dict[str, float] = {}

    def enter(self, phase: str, patience: float = 1.0, *, compiles: bool = True) -> None:
        """Change to another phase. Does nothing in a thread that is not watched.

        Args:
            phase: its name.
            patience: with it, in multiples of the patience with an update.
            compiles: whether its first time may take any time.
        """
        if threading.get_ident() != self.thread:
            return
        if not compiles:
            self._longest.setdefault(phase, 0.0)
        now, before = time.monotonic(), self.now[0]
        seconds = now - self._entered
        if seconds >= self._longest.get(before, 0.0):
            self._longest[before] = seconds
        self.spent[before] = self.spent.get(before, 0.0) + seconds
        self.now, self._since, self._entered = (phase, patience), now, now

    @contextmanager
    def doing(self, phase: str, patience: float = LONG, *, compiles: bool = True) -> Generator[None]:
        """Enter a phase for the block, and return to the previous one afterwards; see `enter`."""
        before = self.now
        self.enter(phase, patience, compiles=compiles)
        try:
            yield
        finally:
            self.enter(*before)

    def alive(self) -> None:
        """Show a sign of life, which restarts the time limit of the phase."""
        self._since = time.monotonic()

    def standing(self, hang_seconds: float) -> Standing:
        """Return the current phase. It may take `hang_seconds` * patience + twice the longest time it took before."""
        phase, patience = self.now
        longest = self._longest.get(phase)
        allowed = LONG if longest is None else patience * hang_seconds + 2 * longest
        return Standing(self.step, phase, time.monotonic() - self._since, allowed)


pulse = Pulse()
"""The phases of this process."""
