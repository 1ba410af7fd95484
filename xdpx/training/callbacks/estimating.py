"""Estimate early how long a training will take, from its first updates on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils.progress import format_seconds

SECONDS_MEASURED = 5.0
"""From the end of the first update on, which is slower than the others. A run that is over sooner needs no estimate."""


class Estimating(Callback):
    """Logs once how long the remaining updates will take, and how much memory is in use.

    Args:
        memory: returns the memory in use as text, such as `1.2 GiB of memory`.
    """

    def __init__(self, memory: Callable[[], str]) -> None:
        self._memory = memory
        self._begun: tuple[int, float] | None = None
        self._told = False

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Measure the time of the first updates; log the estimate after `SECONDS_MEASURED`."""
        if self._told:
            return None
        if self._begun is None:
            self._begun = step.number, time.monotonic()
            return None
        number, since = self._begun
        seconds = time.monotonic() - since
        if seconds >= SECONDS_MEASURED:
            self._told = True
            to_go = session.until - step.number
            each = seconds / (step.number - number)
            log.info(
                f"step {step.number}: {1 / each:,.3g} updates/s; {to_go:,} to go, about {format_seconds(each * to_go)} "
                f"without further evaluations; {self._memory()} so far"
            )
        return None
