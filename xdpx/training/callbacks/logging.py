"""Write the rows of train.log.tsv, and show a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xdpx.logger import log
from xdpx.reports.growing_table import Cell, GrowingTable
from xdpx.reports.noted_pictures import write_pictures
from xdpx.reports.run_tables import beside, train_row
from xdpx.reports.windows import Window
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import io
from xdpx.utils.decisions import due

TrainMetrics = Callable[[Mapping[str, float]], dict[str, float]]
"""Computes the logged metrics from the summed facts of some updates: `train_metrics` of a loss."""

LOG = "log"
"""The name of this reader's window in the accumulator."""


class Logging(Callback):
    """Collects the facts of every update, and logs a row every `interval` updates. Must be the first callback.

    Loss and metrics of a row are over all updates since the previous row; gnorm, clip and lr are of its own update.

    Attributes:
        row: the last row.
        texts: the texts that the model recorded since the previous row, and the paths of its pictures.
        logged_step: the update of the last row.
    """

    name = "logging"

    def __init__(
        self, table: GrowingTable, accumulator: MetricAccumulator, metrics: TrainMetrics, *, interval: int
    ) -> None:
        self.row: dict[str, Cell] = {}
        self.texts: dict[str, str] = {}
        self.logged_step = 0
        self._table = table
        self._accumulator = accumulator
        self._metrics = metrics
        self._interval = interval
        self._bar: Any = None

    def on_start(self, session: Session) -> None:
        """Show the progress bar; drop the rows of updates that a resumed run takes again."""
        self._table.drop_after(session.number)
        self._bar = log.progress(total=session.total, what="train", unit="step")
        self._bar.start_at(session.number)
        self._accumulator.stopwatch.start()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Collect the facts; write a row if that is due."""
        self._accumulator.add(step.number, step.facts)
        if due(step.number, self._interval):
            self.write_row(session)
        self._bar.update()
        return None

    def write_row(self, session: Session) -> None:
        """Write a row for the updates since the previous row."""
        window = self._accumulator.take(LOG)
        progress, number = session.progress, session.number
        progress.train_seconds += window.seconds
        progress.tokens += round(window.sums.get("num_tokens", 0.0))
        self.row = self._cells(window, epoch=progress.epoch, number=number)
        self.logged_step = number
        texts, pictures = log.take_notes()
        self.texts = texts | write_pictures(io.parent(self._table.path), pictures, number)
        self._table.append(self.row, more=self.texts)
        self._bar.note(self._note(progress.best_score))

    def _cells(self, window: Window, *, epoch: int, number: int) -> dict[str, Cell]:
        last = self._accumulator.last
        cells = train_row(epoch, number, window, metrics=train_metrics(window, self._metrics), last=last)
        summaries = log.take_summaries()
        cells |= beside({*cells, "loss_scale"}, {name: summaries[name] for name in sorted(summaries)})
        if "loss_scale" in last:
            cells["loss_scale"] = last["loss_scale"]
        return cells

    def _note(self, best_score: float | None) -> str:
        best = "" if best_score is None else f", best {best_score:.4g}"
        shown = ((name, self.row[name]) for name in ("loss", "gnorm", "wps"))
        return ", ".join(f"{name} {value:.3g}" for name, value in shown if isinstance(value, float)) + best

    def on_end(self, session: Session, stop: Stop) -> None:
        """Add the updates after the last row to the totals."""
        if self.logged_step != session.number:
            self._accumulator.settle()
        self._table.flush()

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the facts since the last row, after writing the rows so far to the file."""
        self._table.flush()
        return {"ledger": self._accumulator.state_dict(), "row": dict(self.row), "logged_step": self.logged_step}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._accumulator.load_state_dict(saved["ledger"])
        self.row = dict(saved["row"])
        self.logged_step = int(saved["logged_step"])


def train_metrics(window: Window, metrics: TrainMetrics) -> dict[str, float]:
    """Return `loss` and the other metrics of the updates of a window."""
    if not window.num_updates:
        return {"loss": float("nan")}
    return {"loss": window.ratio("loss_sum", "count")} | metrics(window.sums)
