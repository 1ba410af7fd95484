"""Trackers that write everything that is logged as one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from xdpx.logger import log
from xdpx.reports.metric_lines import METRICS_FILE, MetricLines, plain
from xdpx.reports.trackers.values import PHASES, TrainingSettings, TrainingState, number_in
from xdpx.utils.io_utils import io
from xdpx.utils.paths import StrPath
from xdpx.utils.replacing import adding

FILE_NAME = "logs.jsonl"


class JsonLines:
    """Appends time, step and values to a file. A resumed run continues the same file.

    Args:
        path: of the file, local or remote; `logs.jsonl` in the output folder if None.
    """

    def __init__(self, path: StrPath | None = None) -> None:
        self.path = path
        self._works = True

    def on_log(
        self, args: TrainingSettings, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Write one line. A full disk does not end the training: it is reported once, and nothing more is written."""
        if not state.is_world_process_zero or not self._works:
            return
        path = self.path if self.path is not None else io.join(args.output_dir, FILE_NAME)
        row = {"time": datetime.now().astimezone().isoformat(timespec="milliseconds"), "step": state.global_step}
        line = json.dumps({**row, **{name: _plain(value) for name, value in logs.items()}}, allow_nan=False)
        try:
            with adding(path) if self.path is None else io.open(path, "a") as file:
                file.write(line + "\n")
        except OSError as error:
            self._works = False
            log.warning(f"Nothing more is written to {path}: {error}")


class MetricsFile:
    """Writes metrics.jsonl into the folder of the training, as x-train and x-exp do; every training has one.

    Args:
        folder: returns the folder when training begins; each trial of a search has its own.
    """

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        self._lines: MetricLines | None = None  # None before the first training, and on other processes

    def on_train_begin(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Continue the file after the current step; a new training starts an empty one."""
        self._lines = MetricLines(io.join(self._folder(), METRICS_FILE)) if state.is_world_process_zero else None
        if self._lines is not None:
            self._lines.drop_after(None, state.global_step or -1)

    def on_log(
        self, args: TrainingSettings, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Write one line."""
        if self._lines is not None:
            held_out = any(name.startswith(tuple(f"{phase}_" for phase in PHASES)) for name in logs)
            row = {"step": state.global_step, **{name: _plain(value) for name, value in logs.items()}}
            self._lines.append("valid" if held_out else "train", row)

    def on_train_end(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Make sure that every line has reached the file."""
        if self._lines is not None:
            self._lines.flush()


def _plain(value: object) -> Any:
    """Return a value that strict JSON can hold; one-element tensors and arrays become numbers."""
    number = number_in(value)
    return plain(value if number is None else number)
