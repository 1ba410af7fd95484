"""A tracker that logs to TensorBoard."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from xdpx.logger import log
from xdpx.reports.trackers.values import TrainingSettings, TrainingState, by_phase, number_in
from xdpx.utils.io_utils import io

FOLDER_VARIABLE = "TENSORBOARD_LOGGING_DIR"
WRITERS = ("torch.utils.tensorboard", "tensorboardX")


class TensorBoardCallback:
    """Writes scalars and texts to $TENSORBOARD_LOGGING_DIR, else to `runs/<date>_<host>` in the output folder.

    Args:
        tb_writer: a `SummaryWriter` to use instead of a new one.

    Raises:
        RuntimeError: if neither tensorboard nor tensorboardX is installed.
    """

    def __init__(self, tb_writer: Any = None) -> None:
        self._writer_class = _find_writer() if tb_writer is None else None
        self.tb_writer = tb_writer
        self.logging_dir: str | None = os.path.expanduser(os.environ.get(FOLDER_VARIABLE, "")) or None

    def on_train_begin(
        self, args: TrainingSettings, state: TrainingState, control: object, model: object = None, **kwargs: object
    ) -> None:
        """Start a file, with the arguments and the model config as texts."""
        if not state.is_world_process_zero:
            return
        if state.is_hyper_param_search and state.trial_name is not None:
            self.logging_dir = io.join(args.output_dir, _folder_of_run(), state.trial_name)
        writer = self._writer(args)
        if writer is None:
            return
        writer.add_text("args", args.to_json_string())
        config = getattr(model, "config", None)
        if config is not None and hasattr(config, "to_json_string"):
            writer.add_text("model_config", config.to_json_string())

    def on_log(
        self, args: TrainingSettings, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Write what was logged; a value that is neither a number nor a text is skipped with one warning."""
        writer = self._writer(args) if state.is_world_process_zero else None
        if writer is None:
            return
        for name, value in by_phase(logs).items():
            number = number_in(value)
            if number is not None:
                writer.add_scalar(name, number, state.global_step)
            elif isinstance(value, str):
                writer.add_text(name, value, state.global_step)
            else:
                log.warning(f"TensorBoard: {name} is a {type(value).__name__}, not a number or text.", once=True)
        writer.flush()

    def on_train_end(self, args: TrainingSettings, state: TrainingState, control: object, **kwargs: object) -> None:
        """Close the file; anything logged later goes to another file next to it."""
        if self.tb_writer is not None:
            self.tb_writer.close()
            self.tb_writer = None

    def _writer(self, args: TrainingSettings) -> Any:
        if self.tb_writer is None and self._writer_class is not None:
            self.logging_dir = self.logging_dir or getattr(args, "logging_dir", None)
            self.logging_dir = self.logging_dir or io.join(args.output_dir, _folder_of_run())
            self.tb_writer = self._writer_class(log_dir=self.logging_dir)
        return self.tb_writer


def _folder_of_run() -> str:
    return io.join("runs", f"{datetime.now().astimezone():%b%d_%H-%M-%S}_{socket.gethostname()}")


class PlainWriter:
    """Writes scalars and texts like torch's `SummaryWriter`, without torch, whose import takes a second of CPU time.

    Args:
        log_dir: any path that TensorBoard can write to.
        purge_step: events of this step and later ones, from an earlier writer, are no longer shown.

    Raises:
        ImportError: tensorboard is not installed.
    """

    def __init__(self, log_dir: str, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event = Event
        self._file = EventFileWriter(log_dir)
        if purge_step is not None:
            self._add(purge_step, file_version="brain.Event:2")
            self._add(purge_step, session_log=SessionLog(status=SessionLog.START))

    def add_scalar(self, tag: str, value: float, step: int | None = None) -> None:
        """Write a number."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=float(value))]))

    def add_text(self, tag: str, text: str, step: int | None = None) -> None:
        """Write a text, which TensorBoard displays as Markdown."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        about, content = create_summary_metadata(tag, ""), make_tensor_proto([text.encode()])
        value = Summary.Value(tag=f"{tag}/text_summary", metadata=about, tensor=content)
        self._add(step, summary=Summary(value=[value]))

    def flush(self) -> None:
        """Write what is pending."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, step: int | None, **content: Any) -> None:
        self._file.add_event(self._event(wall_time=time.time(), step=step or 0, **content))


def new_writer(folder: str, *, purge_step: int | None = None) -> Any:
    """Return a writer of scalars and texts for a folder: a `PlainWriter`, or the `SummaryWriter` of tensorboardX.

    Args:
        folder: any path that TensorBoard can write to.
        purge_step: events of this step and later ones, from an earlier writer, are no longer shown.

    Raises:
        RuntimeError: if neither tensorboard nor tensorboardX is installed.
    """
    if find_spec("tensorboard") is not None:
        _spare_tensorflow()
        return PlainWriter(folder, purge_step)
    return _find_writer()(log_dir=folder, purge_step=purge_step)


def _find_writer() -> Any:
    _spare_tensorflow()
    for module in WRITERS:
        try:
            return importlib.import_module(module).SummaryWriter
        except ImportError:
            continue
    raise RuntimeError("TensorBoard is not installed. Install it by `pip install tensorboard`.")


def _spare_tensorflow() -> None:
    """Keep TensorBoard from importing TensorFlow, if installed, just for file access: that takes 4 s of CPU time.

    TensorBoard checks for this module first, which its packages without TensorFlow contain.
    """
    name = "tensorboard.compat.notf"
    if "tensorflow" not in sys.modules and find_spec("tensorboard") is not None:
        compat = importlib.import_module("tensorboard.compat")
        compat.notf = sys.modules.setdefault(name, ModuleType(name))  # type: ignore[attr-defined]
