"""Handle SIGTERM, SIGINT and SIGUSR1: finish the update, save, and exit with a code that means "resume me"."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any, TypeVar

from xdpx.training.loop import Interrupted
from xdpx.utils.distributed_utils import StopTogether, until_any

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], Any] | int | None

_END: Any = object()

SECONDS_OF_ONE_REQUEST = 10.0
"""A signal repeated within this time is the same request. Slurm sends SIGTERM twice within milliseconds to tasks of a
preempted step; and a launcher that signals all processes of a job also reaches those that ours forward it to."""
SECONDS_OF_ONE_KEY = 1.0
"""The same for SIGINT: a user who presses Ctrl-C again later means it."""

GRACE_SECONDS = 5.0
"""Seconds that a read of data may still take after a signal: the update on them is worth it, and a read that is cut off
leaves random generators and the user's own source somewhere in between."""

EXIT_CODE = 85
"""Exit code of an interrupted run, which the same command resumes: neither success nor failure."""

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name)
)  # SIGUSR1 is what Slurm's --signal and others send ahead of time


class _Wait(AbstractContextManager[None]):
    """A context of two functions: one of a generator would take longer than both, once per update."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()


class Preemption:
    """A context in which the first signal is only recorded; another request ends the process at once.

    Args:
        signals: numbers of the signals to handle.

    Attributes:
        listens: whether any signal is handled.
        received: name of the signal received, None if there was none.
        alone: whether this process trains alone, and so may stop waiting for data; several stop after an update.
        goes_on: whether training continues after a signal.
    """

    def __init__(self, signals: Sequence[int] = SIGNALS) -> None:
        self.received: str | None = None
        self.listens = bool(signals)
        self.alone = True
        self.goes_on = False
        self._signals = signals
        self._waiting = False
        self._since = 0.0
        self._before: dict[int, Handler] = {}
        self._before_alarm: Handler = None
        self._wait = _Wait(self._begin_wait, self._end_wait)

    def __enter__(self) -> Preemption:
        # Python delivers signals to the main thread only; elsewhere the owner of the process decides.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._signals}
        return self

    def ignore_signals(self) -> None:
        """Ignore these signals from now on: all is saved and the process is ending, but launchers repeat signals."""
        self._before = dict.fromkeys(self._before, signal.SIG_IGN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            one_request = SECONDS_OF_ONE_KEY if number == signal.SIGINT else SECONDS_OF_ONE_REQUEST
            if time.monotonic() - self._since >= one_request:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.received, self._since = signal.Signals(number).name, time.monotonic()
        # Not through the log: a signal may arrive while a line is being written, and a lock is not taken twice.
        os.write(2, f"\n{self.received}: stopping after this update. Send it again to stop at once.\n".encode())
        if self._waiting:
            self._limit_the_wait()

    def _limit_the_wait(self) -> None:
        if not hasattr(signal, "setitimer"):
            self._give_up_waiting()
            return
        self._before_alarm = signal.signal(signal.SIGALRM, lambda number, frame: self._give_up_waiting())
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def _give_up_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            raise Interrupted(f"interrupted by {self.received} while waiting for data")

    def waiting(self) -> AbstractContextManager[None]:
        """Let a signal interrupt the `with` block, which waits for data (a shard can take hours).

        A signal from before interrupts at once, one inside the block after `GRACE_SECONDS`.

        Raises:
            Interrupted: a signal was received.
        """
        return self._wait

    def _begin_wait(self) -> None:
        self._waiting = self.alone and not self.goes_on
        if self.received is not None:
            self._give_up_waiting()

    def _end_wait(self) -> None:
        self._waiting = False
        if self._before_alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before_alarm)
            self._before_alarm = None

    def ends_evaluation(self) -> bool:
        """Return whether an evaluation must end: this process received a signal after which training does not go on."""
        return self.received is not None and not self.goes_on

    def cut_short(self, number: int) -> Interrupted:
        """Return the exception that ends the evaluation after update `number`, the same on all processes."""
        by = self.received or "a signal to another process"
        return Interrupted(f"interrupted by {by} after step {number}, in its evaluation, which will begin again")

    def scored(self, batches: Iterable[T], number: int) -> Generator[T]:
        """Yield the batches that this process scores after update `number`; on all processes that train together.

        Raises:
            Interrupted: before a batch, because a signal came to one of the processes; on all of them.
        """
        try:
            yield from until_any(batches, self.ends_evaluation)
        except StopTogether:
            raise self.cut_short(number) from None

    def watched(self, items: Generator[T]) -> Generator[T]:
        """Yield `items`, waiting for each inside `waiting`."""
        try:
            while True:
                with self.waiting():
                    item = next(items, _END)
                if item is _END:
                    return
                yield item
        finally:
            items.close()
