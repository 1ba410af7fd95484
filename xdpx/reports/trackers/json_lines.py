"""Everything that is logged, as one JSON object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from xdpx.logger import log
from xdpx.reports.trackers.values import TrainingSettings, TrainingState, number_in
from xdpx.utils.io_utils import io
from xdpx.utils.paths import StrPath
from xdpx.utils.replacing import adding

FILE_NAME = "logs.jsonl"


class JsonLines:
    """Appends to a file: when, at which step, and what. A resumed run goes on in the same file.

    Args:
        path: of the file, local or remote; `logs.jsonl` in the output folder when None.
    """

    def __init__(self, path: StrPath | None = None) -> None:
        self.path = path
        self._works = True

    def on_log(
        self, args: TrainingSettings, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Write one line. A disk that is full does not end the training: it is said once, and no more is written."""
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
            log.warning(f"No more is written to {path}: {error}")


def _plain(value: object) -> Any:
    """Return what strict JSON can hold: "nan" and "inf" are text there."""
    number = number_in(value)
    if number is not None:
        return number if math.isfinite(number) else str(number)
    return value if value is None or isinstance(value, str) else str(value)
