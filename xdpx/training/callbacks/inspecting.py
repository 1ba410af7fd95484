"""Record and draw the size of every weight's gradient; warn of gradients that vanish, explode or are zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite

from xdpx.engines.base import GradientSize
from xdpx.logger import log
from xdpx.reports.gradient_words import troubles
from xdpx.reports.growing_table import Cell, GrowingTable
from xdpx.reports.windows import Stopwatch
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import io
from xdpx.utils.decisions import due

FOLDER = "plots/gradients"
HISTORY = "history.tsv"
UPDATES_SHOWN = 400
"""Most recorded updates that the figure of the history shows."""

Sizes = Mapping[str, GradientSize]


class Inspecting(Callback):
    """Records the sizes of gradients every `interval` updates; draws them after evaluations and at the end.

    Only these updates cost time: their sizes are computed on the device and fetched in one transfer. A failure is only
    a warning.

    Args:
        folder: of the run; `plots/gradients` in it has the pictures and `history.tsv`.
        figext: format of the pictures.
        stopwatch: of the training time; paused meanwhile.
        interval: updates from one record to the next.
    """

    def __init__(self, folder: str, figext: str, stopwatch: Stopwatch, *, interval: int) -> None:
        self._folder, self._figext, self._stopwatch = io.join(folder, FOLDER), figext, stopwatch
        self._interval = interval
        self._history: deque[tuple[int, Sizes]] = deque(maxlen=UPDATES_SHOWN)
        self._told: set[tuple[str, str]] = set()
        self._table: GrowingTable | None = None

    def on_start(self, session: Session) -> None:
        """Open `history.tsv`; drop the rows of updates that a resumed run takes again."""
        self._table = GrowingTable(io.join(self._folder, HISTORY))
        self._table.drop_after(session.number)

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Record the gradients if that is due; the engine keeps those of an update until the next one."""
        evaluated = session.progress.just_evaluated
        if due(step.number, self._interval) or evaluated:
            with self._stopwatch.paused():
                self._try(lambda: self._look(session.engine.gradient_sizes(session.state), step.number))
                if evaluated:
                    self._try(self._draw)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Draw the last recorded gradients, and the history."""
        self._try(self._draw)
        if self._table is not None:
            self._table.flush()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # whatever is wrong with a picture, training is worth more
            log.warning(f"the gradients were not recorded: {type(error).__name__}: {error}")

    def _look(self, sizes: Sizes, number: int) -> None:
        self._history.append((number, sizes))
        for name, size in sizes.items():
            row: dict[str, Cell] = {
                "step": number,
                "weight": name,
                "mean": size.mean,
                "largest": size.largest,
                "zeros": size.zeros,
            }
            if self._table is not None:
                self._table.append(row)
        finite = [sizes for _, sizes in self._history if all(isfinite(size.largest) for size in sizes.values())]
        for trouble in troubles(finite):
            if (trouble.kind, trouble.where) not in self._told:
                self._told.add((trouble.kind, trouble.where))
                log.warning(f"step {number}: {trouble.words}")

    def _draw(self) -> None:
        if not self._history:
            return
        from xdpx.reports import gradients

        number, sizes = self._history[-1]
        path = io.join(self._folder, f"{number}.{self._figext}")
        gradients.draw_gradients(sizes, path, title=f"gradients of step {number}")
        gradients.draw_history(self._history, io.join(self._folder, f"history.{self._figext}"))
