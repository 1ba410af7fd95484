"""Redraw the figures of a run while it goes on. A figure that fails is a warning, never the end of a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from xdpx.logger import log
from xdpx.reports.windows import Stopwatch
from xdpx.training.loop import Callback, Session, Step, Stop

MOST_TIME_SPENT = 0.02
"""Share of the time that may go into drawing; the last figures, at the end, are always drawn."""

SECONDS_BEFORE_FIRST = 10.0
"""A run that is over sooner is drawn once, at its end."""

SECONDS_OF_FIRST = 2.0
"""What the first figures of a process take at least, which imports what draws: one that is started again and again must
not spend its time on that."""


class Plotting(Callback):
    """Draw after evaluations, as often as it costs little, and at the end."""

    def __init__(self, draw: Callable[[], object], stopwatch: Stopwatch) -> None:
        self._draw = draw
        self._stopwatch = stopwatch
        self._not_before = time.monotonic() + SECONDS_BEFORE_FIRST

    def on_start(self, session: Session) -> None:
        """Let a run that goes on keep the figures that it has for a while."""
        if session.number:
            self._not_before = time.monotonic() + SECONDS_OF_FIRST / MOST_TIME_SPENT

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Draw if there is a new score."""
        if session.progress.just_evaluated and time.monotonic() >= self._not_before:
            self._try_to_draw()
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Draw everything there is."""
        self._try_to_draw()

    def _try_to_draw(self) -> None:
        begun = time.monotonic()
        with self._stopwatch.paused():
            try:
                self._draw()
            except Exception as error:  # whatever is wrong with a picture, training is worth more
                log.warning(f"the figures were not drawn: {type(error).__name__}: {error}")
        self._not_before = time.monotonic() + (time.monotonic() - begun) / MOST_TIME_SPENT
