"""What a run recorded while it trained: its two logs, and the settings that are needed to interpret them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config import catalogue
from xdpx.config.args_file import all_args, newest_args
from xdpx.config.faults import ConfigError
from xdpx.config.stored_args import read_args
from xdpx.logger import log
from xdpx.reports.run_tables import BEST_STEP, TRAIN_LOG, VALID_LOG
from xdpx.utils import io

Floats = NDArray[np.float64]
Columns = dict[str, Floats]

UNIT_OF_OLD_RUNS = "bits"
"""Unit of the losses of runs that are older than the parameter `loss_unit`."""
WITHOUT_UNIT = frozenset({"minilm", "mse", "pkm_local_distill", "tinybert", "tinybert_td"})
"""Losses that are not, or only in part, logarithms of probabilities."""
BLOCK = 1 << 20
"""Bytes of a log that are parsed at a time."""
FEW_ROWS = 20_000
"""Logs with at most this many rows are never thinned."""
STRETCHES = 1000
"""Number of stretches into which a longer log is cut for thinning; each keeps its extremes and some rows between."""
_ROWS_BETWEEN = 16

_parsed: dict[tuple[str, bool], tuple[tuple[int, str], LogTable]] = {}
_MOST_PARSED = 32


@dataclass(frozen=True)
class LogTable:
    """A log as named columns of float64, one row per step, steps increasing; empty cells are NaN."""

    columns: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name] if name in self.columns else np.full(len(self), np.nan)

    def row(self, index: int) -> dict[str, float]:
        """Return one row without its empty cells."""
        cells = {name: float(values[index]) for name, values in self.columns.items()}
        return {name: value for name, value in cells.items() if not np.isnan(value)}


@dataclass(frozen=True)
class RunLogs:
    """The logs and settings of one run.

    Attributes:
        folder: of the run.
        train: its log of training.
        valid: its log of evaluations.
        settings: of its newest `args.py`, flat; empty if it has none.
        paces: (step, samples per update from there on) of a run that was resumed with other settings; else empty.
    """

    folder: str
    train: LogTable
    valid: LogTable
    settings: Mapping[str, Any]
    paces: Sequence[tuple[int, float]] = ()

    @property
    def samples_per_step(self) -> float | None:
        """The number of training samples per update at the end; None if `args.py` does not specify a batch size."""
        return _pace(self.settings)

    def samples_at(self, steps: Floats) -> Floats:
        """Return the number of training samples seen by each step; NaN if the batch size is not known."""
        begins, paces, before = self._stretches()
        place = np.searchsorted(begins, steps, side="right") - 1
        return before[place] + (steps - begins[place]) * paces[place]

    def steps_at(self, samples: Floats) -> Floats:
        """Return the step, possibly a fraction, at which so many training samples had been seen."""
        begins, paces, before = self._stretches()
        place = np.searchsorted(before, samples, side="right") - 1
        return begins[place] + (samples - before[place]) / paces[place]

    def _stretches(self) -> tuple[Floats, Floats, Floats]:
        """Return the first step, the samples per update, and the samples before, of each stretch of one batch size."""
        known = self.paces or [(0, self.samples_per_step or float("nan"))]
        begins, paces = np.array(known, np.float64).T
        return begins, paces, np.cumsum([0.0, *np.diff(begins) * paces[:-1]])

    @property
    def loss_unit(self) -> str | None:
        """The unit of likelihood losses; None if the loss has no such unit, or args.py does not name a loss."""
        name = self.settings.get("loss")
        if not isinstance(name, str) or name in WITHOUT_UNIT or name not in catalogue.names("loss"):
            return None
        return str(self.settings.get("loss_unit", UNIT_OF_OLD_RUNS))

    @property
    def ascending(self) -> bool:
        """Whether a higher major metric is better; without settings, judged by the trend of `best_score`."""
        if "ascending_metric" in self.settings:
            return bool(self.settings["ascending_metric"])
        scores = self.valid["best_score"]
        known = scores[np.isfinite(scores)]
        return len(known) == 0 or bool(known[-1] >= known[0])

    @property
    def best_row(self) -> int | None:
        """The index in `valid` of the first best evaluation; None if there is none.

        It is the row at which `best_score`, or its step, changed last, as for `<best>`: a run that is resumed on other
        held-out data begins to count anew. Where `best_score` is not that of the major metric, it is the row with the
        best score.
        """
        scores = self.major_scores
        if np.isnan(scores).all():
            return None
        best = self.valid["best_score"]
        known = np.flatnonzero(np.isfinite(best))
        if len(known):
            anew = np.nan_to_num(self.valid[BEST_STEP][known])  # NaN where it was not reset
            changed = (np.diff(best[known], prepend=np.nan) != 0) | (np.diff(anew, prepend=0.0) != 0)
            row = int(known[np.flatnonzero(changed)[-1]])
            if scores[row] == best[known[-1]]:
                return row
        return int(np.nanargmax(scores) if self.ascending else np.nanargmin(scores))

    @property
    def major_scores(self) -> Floats:
        """The major metric of each evaluation; without settings, `best_score`, which has the same extreme."""
        metric = f"valid_{self.settings.get('major_metric')}"
        return self.valid[metric if metric in self.valid else "best_score"]


def read_run(folder: str, *, train: bool = True, thinned: bool = False) -> RunLogs:
    """Read the logs and settings of a run. A log that does not exist (yet) becomes an empty table.

    Args:
        folder: of the run, local or remote.
        train: also read train.log.tsv.
        thinned: see `read_table`.
    """
    valid = read_table(io.join(folder, VALID_LOG), thinned=thinned)
    trained = read_table(io.join(folder, TRAIN_LOG), thinned=thinned) if train else LogTable()
    return RunLogs(folder, trained, valid, _settings(folder), _paces(folder))


def _pace(settings: Mapping[str, Any]) -> float | None:
    """Return the number of training samples per update; None if there is no batch size among the settings."""
    batch_size = settings.get("batch_size")
    return float(batch_size * (settings.get("update_freq") or 1)) if batch_size else None


def _paces(folder: str) -> list[tuple[int, float]]:
    """Return (step, samples per update from there on) of a run that was resumed with other settings; else []."""
    files = all_args(folder)
    try:
        found = [(step, _pace(read_args(path))) for step, path in files] if len(files) > 1 else []
    except (ConfigError, OSError):  # a damaged file: the newest one counts for all steps
        return []
    known = [(step, pace) for step, pace in found if pace is not None]
    return known if len(known) == len(found) > 1 and known[0][0] == 0 else []


def _settings(folder: str) -> dict[str, Any]:
    """Return the settings in args.py. If it is damaged, warn and return {}: the logs can be read without it."""
    args_file = newest_args(folder)
    try:
        return read_args(args_file) if args_file else {}
    except (ConfigError, OSError) as error:
        log.warning(f"{args_file} is not used: {error}", once=True)
        return {}


def read_table(path: str, *, thinned: bool = False) -> LogTable:
    """Read a log that may still be growing. An unchanged file is not parsed again.

    A last line without a line end is still being written, so it is left out. A second header starts new columns.
    If a run was resumed from an earlier step, the rows of repeated steps replace the earlier ones.

    Args:
        path: of the log.
        thinned: of a log with more than `FEW_ROWS` rows keep a sample, in bounded memory: the first and last row, those
            with the lowest and the highest value of each column in each stretch, those that begin an epoch, and evenly
            spaced ones. The first best evaluation is always among them.
    """
    if not io.isfile(path):
        return LogTable()
    stamp = (io.size(path), str(io.last_modified(path)))
    known = _parsed.get((path, thinned))
    if known and known[0] == stamp:
        return known[1]
    table = _table(_thinned(path, stamp[0]) if thinned else chunks(path))
    while len(_parsed) >= _MOST_PARSED:
        _parsed.pop(next(iter(_parsed)))
    _parsed[path, thinned] = (stamp, table)
    return table


def chunks(path: str) -> Iterator[Columns]:
    """Yield all rows of a log in bounded memory, as columns of some thousand rows each.

    A cell with invalid UTF-8 becomes NaN.
    """
    parser, rest = RowParser(), b""
    with io.open(path, "rb") as log_file:
        while block := log_file.read(BLOCK):
            whole, end, rest = (rest + block).rpartition(b"\n")
            if end:
                yield from parser.parse(whole.decode("utf-8", "replace").split("\n"))


class RowParser:
    """Parser of lines into columns; it remembers the current header from one block of lines to the next.

    Args:
        names: of the requested columns; None for all.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = names
        self._header: list[str] = []

    def parse(self, lines: list[str]) -> Iterator[Columns]:
        """Yield the columns of the rows after each header."""
        starts = [index for index, line in enumerate(lines) if line.startswith("epoch\tstep")]
        for start, end in pairwise([-1, *starts, len(lines)]):
            if start >= 0:
                self._header = lines[start].split("\t")
            rows = list(filter(None, lines[start + 1 : end]))
            if self._header and rows:
                yield _columns(self._header, rows) if self._names is None else self._few(self._names, rows)

    def _few(self, names: Collection[str], lines: Sequence[str]) -> Columns:
        """Return some columns. Lines are split only up to the last of them, so a few of a wide log are cheap."""
        places = {name: place for place, name in enumerate(self._header) if name in names}
        last = max(places.values(), default=0)
        cells = [line.split("\t", last + 1) for line in lines]
        if any(len(row) <= last for row in cells):  # a line that was cut short
            cells = [row + [""] * (last + 1 - len(row)) for row in cells]
        return {name: _floats([row[place] for row in cells]) for name, place in places.items()}


def _columns(header: Sequence[str], lines: Sequence[str]) -> Columns:
    width = len(header)
    return dict(zip(header, _floats(_cells(lines, width)).reshape(-1, width).T, strict=True))


def _cells(lines: Sequence[str], width: int) -> list[str]:
    """Return the cells of all lines in one list, `width` cells per line."""
    if all(line.count("\t") == width - 1 for line in lines):
        return "\t".join(lines).split("\t")
    return [cell for line in lines for cell in (line.split("\t") + [""] * width)[:width]]


def _floats(cells: Sequence[str]) -> Floats:
    try:
        return np.array(list(map(float, cells)), np.float64)
    except ValueError:  # an empty cell, or one that is not a number
        return np.array([_float(cell) for cell in cells])


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _thinned(path: str, size: int) -> Iterator[Columns]:
    """Yield the rows that are kept of a log of `size` bytes."""
    with io.open(path, "rb") as log_file:
        stretch = stretch_of(log_file.read(BLOCK), size)
    for columns in chunks(path):
        kept = kept_rows(columns, stretch)
        yield {name: values[kept] for name, values in columns.items()}


def stretch_of(first: bytes, size: int) -> int:
    """Return the rows per stretch, for a log of `size` bytes that begins with `first`; 1 keeps every row."""
    rows = first.count(b"\n") * size / max(1, len(first))
    return round(rows / STRETCHES) if rows > FEW_ROWS else 1


def kept_rows(columns: Columns, stretch: int) -> NDArray[np.intp]:
    """Return the indices of the rows to keep: the extremes of each column per stretch, some between, and boundaries."""
    steps, epochs = columns["step"], columns["epoch"]
    count = len(steps)
    if stretch <= 1:
        return np.arange(count)
    stretches = -(-count // stretch)
    begins = np.arange(stretches) * stretch
    kept = [np.arange(0, count, max(1, stretch // _ROWS_BETWEEN)), np.array([count - 1])]
    for values in columns.values():
        padded = np.full(stretches * stretch, np.nan)
        padded[:count] = values
        table = padded.reshape(stretches, stretch)
        kept += [begins + np.where(np.isnan(table), limit, sign * table).argmin(1) for sign, limit in _BOTH_WAYS]
    news = np.flatnonzero(np.diff(epochs) != 0)
    kept += [news, news + 1] if len(news) <= _ROWS_BETWEEN * stretches else []
    walked_again = np.flatnonzero(np.diff(steps) <= 0)
    found = np.unique(np.concatenate([*kept, walked_again, walked_again + 1]))
    return found[found < count]


_BOTH_WAYS = ((1.0, np.inf), (-1.0, np.inf))
"""(sign, replacement of NaN) to find the lowest and the highest value."""


def _table(parts: Iterator[Columns]) -> LogTable:
    return LogTable(without_rewalked(stacked(list(parts))))


def stacked(parts: list[Columns]) -> Columns:
    """Return the concatenated rows of all parts; a column that a part lacks is NaN there."""
    if len(parts) <= 1:
        return parts[0] if parts else {}
    names = dict.fromkeys(name for part in parts for name in part)
    absent = [np.full(len(part["step"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nans) for part, nans in zip(parts, absent, strict=True)]) for name in names
    }


def without_rewalked(columns: Columns) -> Columns:
    """Drop the rows of steps that were repeated later."""
    steps = columns.get("step", np.empty(0))
    if not len(steps):
        return {}
    lowest_later = np.append(np.minimum.accumulate(np.nan_to_num(steps, nan=np.inf)[::-1])[::-1][1:], np.inf)
    kept = steps < lowest_later
    return columns if kept.all() else {name: values[kept] for name, values in columns.items()}
