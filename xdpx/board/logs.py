"""The logs of a run in any of their formats: tab separated tables, JSON lines, or a Trainer's state."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from xdpx.board.finding import TRAINER_STATE, RunFolder
from xdpx.board.safe_files import NotShown, openable, read_small
from xdpx.reports.curves import epoch_borders
from xdpx.reports.following import ALWAYS, Place, follow
from xdpx.reports.histories import history_of, records_of, tables_of
from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.reports.run_logs import Columns, LogTable
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.reports.trackers.json_lines import FILE_NAME as JSON_LOG
from xdpx.utils import io
from xdpx.utils.storage import Entry

LogName = Literal["train", "valid"]
FILES: dict[LogName, str] = {"train": TRAIN_LOG, "valid": VALID_LOG}
LARGEST_HISTORY = 64 << 20
"""The largest Trainer state or JSON lines file that is read, in bytes."""
_MOST_HISTORIES = 64

_histories: dict[str, tuple[str, dict[str, Columns]]] = {}


@dataclass(frozen=True)
class LogRows:
    """Rows of a log: those that were added or, with `anew`, all of them.

    Attributes:
        columns: name -> values.
        at: where to continue the next time.
        anew: whether they replace the rows read before.
    """

    columns: Columns
    at: str
    anew: bool


def has_tables(run: RunFolder) -> bool:
    """Return whether a run has at least one of the two tables that any training can write."""
    return any(name in run.files and not run.files[name].folder for name in FILES.values())


def log_file(run: RunFolder, log: LogName) -> str:
    """Return the path of the file that holds a log; '' if there is none."""
    if has_tables(run):
        return run.files[FILES[log]].path if FILES[log] in run.files else ""
    return history_file(run)


def history_file(run: RunFolder) -> str:
    """Return the path of the JSON log; of several files, the most recently written one; '' if there is none."""
    inside = f"{run.newest_checkpoint}/{TRAINER_STATE}" if run.newest_checkpoint else ""
    entries = [run.files[name] for name in (METRICS_FILE, JSON_LOG, TRAINER_STATE) if name in run.files]
    found = io.store(run.path).entry(io.join(run.path, inside)) if inside else None
    newest = max([*entries, *([found] if found else [])], key=lambda entry: entry.modified or 0.0, default=None)
    return newest.path if newest else ""


def read_rows(run: RunFolder, log: LogName, names: Collection[str], at: str, *, root: str) -> LogRows | None:
    """Read some columns of a log from `at` on; None if nothing is new or the log does not exist.

    Args:
        run: the run.
        log: which of its two logs.
        names: of the columns; epoch and step are always included.
        at: the place returned by the previous read; '' for all rows.
        root: folder of the board; links that lead out of it are not followed.
    """
    path = log_file(run, log)
    try:
        path = openable(path, root) if path else ""
        if not path:
            return None
        if not has_tables(run):
            return _of_history(path, log, names, at)
        added = follow(path, names, Place.read(at))
    except (OSError, NotShown):
        return None
    fresh = str(added.place) != at
    return LogRows(added.columns, str(added.place), added.anew) if fresh else None


def _of_history(path: str, log: LogName, names: Collection[str], at: str) -> LogRows | None:
    entry = io.store(path).entry(path)
    now = _tag(entry) if entry else ""
    if not entry or now == at:
        return None
    wanted = {*ALWAYS, *names}
    columns = history(path, entry)[log]
    return LogRows({name: values for name, values in columns.items() if name in wanted}, now, anew=True)


def _tag(entry: Entry) -> str:
    return f"{entry.size}-{entry.tag}"


def history(path: str, entry: Entry) -> dict[str, Columns]:
    """Return both tables of a JSON log. An unchanged file is not read again."""
    known = _histories.get(path)
    if known and known[0] == _tag(entry):
        return known[1]
    text = read_small(path, LARGEST_HISTORY)
    try:
        records = records_of(text) if path.endswith(".jsonl") else history_of(json.loads(text))
    except (ValueError, RecursionError):
        records = []
    while len(_histories) >= _MOST_HISTORIES:
        _histories.pop(next(iter(_histories)), None)
    tables = tables_of(records)
    _histories[path] = (_tag(entry), tables)
    return tables


def borders_of(run: RunFolder, root: str) -> list[float]:
    """Return the steps at which the epochs of a run begin, estimated from its logs."""
    read = [read_rows(run, log, (), "", root=root) for log in FILES]
    tables = [LogTable(rows.columns) for rows in read if rows is not None and "epoch" in rows.columns]
    return [float(step) for step in epoch_borders(*tables)] if tables else []
