"""Look at the gradient of every weight, as often as the model is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdpx.logger import log
from xdpx.reports.windows import Stopwatch
from xdpx.training.loop import Callback, Session, Step, Stop

Draw = Callable[[Mapping[str, tuple[float, float]], int], object]
"""Draws (mean, largest) absolute gradients by name of the weight, of one step."""


class Inspecting(Callback):
    """Draw the gradients of the updates after which the model was evaluated. A figure that fails is a warning."""

    def __init__(self, draw: Draw, stopwatch: Stopwatch) -> None:
        self._draw = draw
        self._stopwatch = stopwatch

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Draw if this step was evaluated. The engine keeps the gradients of an update until the next one."""
        if session.progress.just_evaluated:
            with self._stopwatch.paused():
                try:
                    self._draw(session.engine.gradient_sizes(session.state), step.number)
                except Exception as error:  # whatever is wrong with a picture, training is worth more
                    log.warning(f"the gradients were not drawn: {type(error).__name__}: {error}")
        return None
