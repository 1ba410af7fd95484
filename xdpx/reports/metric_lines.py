"""`metrics.jsonl`: every number that a training logs, one JSON object per line, for programs to read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from xdpx.logger import log
from xdpx.utils.io_utils import io
from xdpx.utils.local_files import lines_from_end
from xdpx.utils.owners import temporary_name
from xdpx.utils.replacing import adding

METRICS_FILE = "metrics.jsonl"
Phase = Literal["train", "valid"]


class MetricLines:
    """An append-only file of JSON lines with time, phase, step and numbers. A resumed run continues the same file.

    A full disk does not end the training: it is reported once, and nothing more is written.

    Args:
        path: of the file; for a remote one, lines are collected in a local file, which `flush` uploads.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = path if io.islocal(path) else temporary_name(io.join(io.cache.spool(), io.name(path)))
        self._works, self._dirty, self._fetched = True, False, self._file == path

    def append(self, phase: Phase, row: Mapping[str, Any]) -> None:
        """Write one line; `step` comes before the other numbers."""
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        found = {"time": now, "phase": phase, "step": row.get("step")}
        found |= {name: plain(value) for name, value in row.items() if value is not None}
        self._guarded(lambda: self._add(json.dumps(found, allow_nan=False)))

    def _add(self, line: str) -> None:
        self._fetch()
        with adding(self._file) as file:
            file.write(line + "\n")
        self._dirty = True

    def drop_after(self, phase: Phase | None, step: int) -> None:
        """Drop the lines of later steps, which a resumed run will write again, and a line cut short by a kill.

        Lines that are not ours are kept: in a Trainer's folder, users may have a file of this name.

        Args:
            phase: whose lines are dropped; None for all phases.
            step: the last step that is kept.
        """
        self._guarded(lambda: self._drop_after(phase, step))

    def _drop_after(self, phase: Phase | None, step: int) -> None:
        self._fetch()
        if not io.isfile(self._file):
            return
        kept = list[bytes]()
        with io.open(self._file, "r+b") as file:
            end = 0
            for start, line in lines_from_end(file, 0):
                whose, found = _place_of(line)
                concerned = phase is None or whose == phase
                if concerned and found is not None and found <= step:
                    end = start + len(line)
                    break
                if _is_foreign(line) or (not concerned and found is not None):
                    kept.append(line if line.endswith(b"\n") else line + b"\n")
            file.truncate(end)
            file.seek(end)
            file.writelines(reversed(kept))
        self._dirty = True

    def flush(self) -> None:
        """Make sure that every line has reached the file."""
        if self._dirty and self._file != self.path:
            self._guarded(lambda: io.copy(self._file, self.path))
        self._dirty = False

    def _fetch(self) -> None:
        """Download an existing remote file into the local one, once."""
        if not self._fetched and io.isfile(self.path):
            io.copy(self.path, self._file)
        self._fetched = True

    def _guarded(self, work: Callable[[], object]) -> None:
        if not self._works:
            return
        try:
            work()
        except OSError as error:
            self._works = False
            log.warning(f"Nothing more is written to {self.path}: {error}")


def plain(value: object) -> Any:
    """Return a value that strict JSON can hold; NaN and infinities become the texts "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _place_of(line: bytes) -> tuple[str, int | None]:
    """Return the phase and the step of a line; ("", None) if it was cut short by a kill or is not such a record."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
        return (str(found["phase"]), int(found["step"])) if isinstance(found, dict) else ("", None)
    except (ValueError, KeyError, TypeError):
        return "", None


def _is_foreign(line: bytes) -> bool:
    """Return whether a line is complete, but another program's. The last line of a file may lack its newline."""
    if not line.strip() or b"\0" in line or _place_of(line)[1] is not None:
        return False
    try:
        json.loads(line)
    except ValueError:
        return line.endswith(b"\n")
    return _place_of(line + b"\n")[1] is None
