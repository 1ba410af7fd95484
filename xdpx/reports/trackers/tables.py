"""Writes what is logged as the two tables of an x-train run, so that runs of both kinds can be plotted together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xdpx.config.args_file import ARGS_FILE
from xdpx.logger import log
from xdpx.reports.growing_table import Cell, GrowingTable
from xdpx.reports.run_logs import chunks, read_table
from xdpx.reports.run_tables import COLUMNS, EVAL, TRAIN_LOG, VALID_LOG, Row, train_row, valid_row
from xdpx.reports.trackers.values import TrainingSettings, TrainingState, number_in
from xdpx.reports.windows import Window
from xdpx.utils import commit, io
from xdpx.utils.aside import is_unreadable, set_aside
from xdpx.utils.decisions import is_better
from xdpx.utils.paths import StrPath

SHOWN_OTHERWISE = frozenset(
    {*COLUMNS, "epoch", "step", "num_input_tokens_seen", "train_runtime", "train_tokens_per_second", "total_flos"}
)
"""Logged names that have a column of another name, or none because they follow from others."""
COSTS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "epoch")
"""Suffixes of numbers that measure the cost of an evaluation rather than its result."""
_COURSE = ("step", "loss", "gnorm", "clip", "wps", "ups")
"""Columns of train.log.tsv from which the course of a training is restored."""


class RunTables:
    """Writes train.log.tsv, valid.log.tsv and the args.py that `x-viz` and `x-script aggregate_results` read.

    Losses keep the unit of the model (nats for a cross entropy), as those of x-train do by default. A resumed run
    continues the same files, which hold all the state that it needs from before.

    Args:
        folder: of the tables, local or remote; the output folder if None.
    """

    def __init__(self, folder: StrPath | None = None) -> None:
        self.folder = folder
        self._train: GrowingTable | None = None  # None outside of training, and if nothing can be written
        self._valid: GrowingTable | None = None
        self._course = Course()
        self._best: float | None = None
        self._scored = Scored(0, Window(), 0.0)

    def on_train_begin(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Open the tables at the current step; drop the rows of steps that will be repeated."""
        if not state.is_world_process_zero:
            return
        folder = str(args.output_dir if self.folder is None else self.folder)
        before = state.global_step or -1  # an earlier run leaves nothing, not even its evaluation at step 0
        try:
            path = io.join(folder, ARGS_FILE)
            trouble = is_unreadable(path) if io.exists(path) else ""
            if trouble:
                set_aside(path, trouble, then="it is rewritten")
            commit.write_text(path, settings_text(args), private=True)
            self._train, self._valid = (GrowingTable(io.join(folder, name)) for name in (TRAIN_LOG, VALID_LOG))
            self._train.drop_after(before)
            self._valid.drop_after(before)
        except OSError as error:
            self._give_up(error)
            return
        scored = read_table(self._valid.path, thinned=True)
        last = scored.row(len(scored) - 1) if len(scored) else {}
        self._best, self._scored = last.get("best_score"), Scored(-1, Window(), 0.0)
        self._course = Course.read(self._train.path, scored_at=last.get("step", 0.0))

    def on_log(
        self, args: TrainingSettings, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Write a row if the training loss is logged."""
        updates = state.global_step - self._course.step
        if self._train is None or "loss" not in logs or updates <= 0:
            return
        numbers = {name: float(number) for name, value in logs.items() if (number := number_in(value)) is not None}
        seconds = _seconds(updates, numbers.get("steps_per_second", 0.0))
        window = Window(updates, seconds, {"num_tokens": numbers.get("tokens_per_second", 0.0) * seconds})
        norm, rate = numbers.get("grad_norm", 0.0), numbers.get("learning_rate", 0.0)
        last = {"grad_norm": norm, "learning_rate": rate, "clipped": float(0 < args.max_grad_norm < norm)}
        metrics = {name: value for name, value in numbers.items() if name not in SHOWN_OTHERWISE}
        row = train_row(_epoch(state), state.global_step, window, metrics=metrics, last=last)
        self._course.add(row)
        self._write(self._train, row)

    def on_evaluate(
        self,
        args: TrainingSettings,
        state: TrainingState,
        control: object,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: object,
    ) -> None:
        """Write a row for an evaluation during training; several evaluation sets share one row."""
        if self._valid is None:
            return
        if self._scored.step != state.global_step:
            self._scored = Scored(state.global_step, self._course.take(), self._course.wall(state.global_step))
        scored, again = self._scored, bool(self._scored.metrics)
        scored.metrics |= _metrics_in(metrics or {})
        name, ascending = deciding_metric(args)
        if name in scored.metrics and is_better(scored.metrics[name], self._best, ascending=ascending):
            self._best = scored.metrics[name]
        loss = scored.window.mean("loss") if scored.window.num_updates else math.nan
        row = valid_row(
            _epoch(state), scored.step, scored.window, train_wall=scored.wall, train={"loss": loss},
            valid=scored.metrics, more={}, best_score=self._best,
        )  # fmt: skip
        self._write(self._valid, row, instead=again)
        self._write(self._valid)

    def on_save(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Flush all rows to the files: a run that resumes from this checkpoint reads them."""
        for table in (self._train, self._valid):
            self._write(table)

    def on_train_end(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Flush all rows to the files. Later evaluations are not part of the training."""
        self.on_save(args, state, control)
        self._train = self._valid = None

    def _write(self, table: GrowingTable | None, row: Row | None = None, *, instead: bool = False) -> None:
        """Append a row, with `instead` replacing one of the same step; without a row, flush the file."""
        try:
            if table is not None and row is not None:
                if instead:
                    table.drop_after(int(row["step"] or 0) - 1)
                table.append(row)
            elif table is not None:
                table.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Warn once that writing failed, and write no more: this does not end the training."""
        self._train = self._valid = None
        log.warning(f"Nothing more is written to {TRAIN_LOG} and {VALID_LOG}: {error}")


class Scored:
    """An evaluation: its step, the training updates and seconds before it, and its metrics so far."""

    def __init__(self, step: int, window: Window, wall: float) -> None:
        self.step, self.window, self.wall = step, window, wall
        self.metrics: dict[str, float] = {}


class Course:
    """The course of a training, accumulated from the rows of train.log.tsv: last step, seconds, and newest window.

    Attributes:
        step: the step of the last row.
        seconds: of training up to that step.
        speed: the latest updates per second, 0 if unknown.
        window: over the rows since the last evaluation.
    """

    def __init__(self) -> None:
        self.step, self.seconds, self.speed, self.window = 0, 0.0, 0.0, Window()

    @classmethod
    def read(cls, path: str, *, scored_at: float) -> Course:
        """Read the existing rows; the window covers those after the step `scored_at`."""
        course = cls()
        for columns in chunks(path) if io.isfile(path) else ():
            known = {
                name: np.nan_to_num(columns[name], posinf=np.inf, neginf=-np.inf).tolist()
                for name in _COURSE
                if name in columns
            }
            for numbers in zip(*known.values(), strict=True):
                course.add(dict(zip(known, numbers, strict=True)))
                if course.step <= scored_at:
                    course.window = Window()
        return course

    def add(self, row: Mapping[str, Cell] | Mapping[str, float]) -> None:
        """Add a row."""
        number = {name: float(row.get(name) or 0.0) for name in _COURSE}
        updates = int(number["step"]) - self.step
        seconds = _seconds(updates, number["ups"])
        sums = {"loss": number["loss"], "grad_norm": number["gnorm"], "clipped": number["clip"]}
        sums = {name: value * updates for name, value in sums.items()}
        self.step, self.speed = int(number["step"]), number["ups"]
        self.seconds += seconds
        self.window.join(Window(updates, seconds, {**sums, "num_tokens": number["wps"] * seconds}))

    def take(self) -> Window:
        """Return the window, and start a new one."""
        window, self.window = self.window, Window()
        return window

    def wall(self, step: int) -> float:
        """Return the seconds of training until `step`; after the last row, extrapolated with the last speed."""
        return self.seconds + _seconds(step - self.step, self.speed)


def settings_text(args: TrainingSettings) -> str:
    """Return the text of args.py: the settings, by x-train's names, that readers of the tables need."""
    name, ascending = deciding_metric(args)
    settings = {
        "batch_size": args.train_batch_size * args.world_size,
        "update_freq": args.gradient_accumulation_steps,
        "learning_rate": args.learning_rate,
        "log_interval": args.logging_steps,
        "major_metric": name,
        "ascending_metric": ascending,
        "seed": args.seed,
    }
    lines = [f"    {key!r}: {value!r},\n" for key, value in settings.items()]
    return "".join(["# Trainer\n{\n", *lines, "}\n"])


def deciding_metric(args: TrainingSettings) -> tuple[str, bool]:
    """Return the metric that decides what is best, without prefix, and whether higher is better."""
    name = args.metric_for_best_model or "loss"
    return name.removeprefix(EVAL), bool(args.greater_is_better)


def _metrics_in(logged: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an evaluation, without prefix, and without those that measure its cost."""
    found = {name.removeprefix(EVAL): number_in(value) for name, value in logged.items()}
    return {
        name: float(value)
        for name, value in found.items()
        if value is not None and not name.endswith(COSTS) and "_mem_" not in name
    }


def _seconds(updates: int, speed: float) -> float:
    return updates / speed if speed else 0.0


def _epoch(state: TrainingState) -> int:
    """Return the epoch that a step belongs to, starting from 1."""
    return max(1, math.ceil(state.epoch or 0))
