"""Redraw the figures of a run during training. A failure is only a warning."""

from __future__ import annotations

import time
from collections.abc import Callable

from xdpx.logger import log
from xdpx.reports.windows import Stopwatch
from xdpx.training.loop import Callback, Session, Step, Stop

MOST_TIME_SPENT = 0.02
"""Largest share of the time spent on drawing; the figures at the end are always drawn."""

SECONDS_BEFORE_FIRST = 10.0
"""A run that ends sooner is drawn once, at its end."""

SECONDS_OF_FIRST = 2.0
"""Least time that the first figures of a process take, as they import matplotlib: too much for a run that is often
restarted."""


class Plotting(Callback):
    """Draws after evaluations, unless that would take more than `MOST_TIME_SPENT`, and at the end."""

    def __init__(self, draw: Callable[[], object], stopwatch: Stopwatch) -> None:
        self._draw = draw
        self._stopwatch = stopwatch
        self._not_before = time.monotonic() + SECONDS_BEFORE_FIRST

    def on_start(self, session: Session) -> None:
        """Delay the first drawing of a resumed run, which has figures already."""
        if session.number:
            self._not_before = time.monotonic() + SECONDS_OF_FIRST / MOST_TIME_SPENT

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Draw if the model was just evaluated and enough time has passed."""
        if session.progress.just_evaluated and time.monotonic() >= self._not_before:
            self._try_to_draw()
        return None

    def on_told(self) -> None:
        """Draw the final figures: a run that is killed meanwhile has ended, and `x-viz` draws them, too."""
        self._try_to_draw()

    def _try_to_draw(self) -> None:
        begun = time.monotonic()
        with self._stopwatch.paused():
            try:
                self._draw()
            except Exception as error:  # whatever is wrong with a picture, training is worth more
                log.warning(f"the figures were not drawn: {type(error).__name__}: {error}")
        self._not_before = time.monotonic() + (time.monotonic() - begun) / MOST_TIME_SPENT
