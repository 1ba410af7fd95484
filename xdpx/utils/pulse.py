"""What this process is at, told by its main thread in a few assignments, for whoever watches it from another one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

LONG = math.inf
"""Patience with what may take as long as it likes: compiling, evaluating, saving, the code of users."""
DATA_PATIENCE = 20.0
"""Patience with a wait for data, in multiples of that with an update: a far disk may be slow."""


WAITING = "waiting for the device"
"""The phase in which the host fetches numbers."""


@dataclass(frozen=True)
class Standing:
    """What a process was at when it was asked.

    Attributes:
        step: updates taken so far.
        phase: what it does, e.g. `update`.
        seconds: for how long.
        allowed: seconds that it may take; infinite where there is no limit.
    """

    step: int = 0
    phase: str = "beginning"
    seconds: float = 0.0
    allowed: float = LONG

    @property
    def overdue(self) -> bool:
        """Whether it takes longer than it may."""
        return self.seconds > self.allowed


class Pulse:
    """The phases of one process. The first of each kind may take as long as it likes: it may compile.

    Only the thread that began says what it is at; any thread may give a sign of life.

    Attributes:
        now: the phase, and the patience with it in multiples of that with an update.
        step: updates taken so far.
        thread: which is watched.
        spent: seconds in each phase that was left, since it began.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, step: int = 0) -> None:
        """Forget everything; the calling thread is the one that is watched from here on."""
        self.thread = threading.get_ident()
        self.step = step
        self.now: tuple[str, float] = ("beginning", LONG)
        self._since = self._entered = time.monotonic()
        self._longest: dict[str, float] = {}
        self.spent: dict[str, float] = {}

    def enter(self, phase: str, patience: float = 1.0) -> None:
        """Leave one phase for another; nothing happens in another thread than the one that is watched."""
        if threading.get_ident() != self.thread:
            return
        now, before = time.monotonic(), self.now[0]
        seconds = now - self._entered
        self._longest[before] = max(self._longest.get(before, 0.0), seconds)
        self.spent[before] = self.spent.get(before, 0.0) + seconds
        self.now, self._since, self._entered = (phase, patience), now, now

    @contextmanager
    def doing(self, phase: str, patience: float = LONG) -> Generator[None]:
        """Be in a phase inside, and in the one before afterwards."""
        before = self.now
        self.enter(phase, patience)
        try:
            yield
        finally:
            self.enter(*before)

    def alive(self) -> None:
        """Show a sign of life: what takes long is under way."""
        self._since = time.monotonic()

    def standing(self, hang_seconds: float) -> Standing:
        """Return what the process is at, and how long it may be: so long beyond twice the longest time seen."""
        phase, patience = self.now
        longest = self._longest.get(phase)
        allowed = LONG if longest is None else patience * hang_seconds + 2 * longest
        return Standing(self.step, phase, time.monotonic() - self._since, allowed)


pulse = Pulse()
"""Of this process."""
