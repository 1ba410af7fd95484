"""What a run wrote down while it trained: its two logs and the settings that a reader of them needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.args_file import newest_args, read_args
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.utils import io

Floats = NDArray[np.float64]

_parsed: dict[str, tuple[tuple[int, str], Table]] = {}
_MOST_PARSED = 32


@dataclass(frozen=True)
class Table:
    """A log as named columns of float64, one row per step, steps rising; a cell nobody wrote is NaN."""

    columns: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name] if name in self.columns else np.full(len(self), np.nan)

    def row(self, index: int) -> dict[str, float]:
        """Give one row without the cells that nobody wrote."""
        cells = {name: float(values[index]) for name, values in self.columns.items()}
        return {name: value for name, value in cells.items() if not np.isnan(value)}


@dataclass(frozen=True)
class RunLogs:
    """One run's logs and settings (of its newest `args.py`, flat; empty when it has none)."""

    folder: str
    train: Table
    valid: Table
    settings: Mapping[str, Any]

    @property
    def samples_per_step(self) -> float | None:
        """Give the number of training samples of one update, None when `args.py` does not say."""
        batch_size = self.settings.get("batch_size")
        return float(batch_size * (self.settings.get("update_freq") or 1)) if batch_size else None

    @property
    def ascending(self) -> bool:
        """Tell whether a higher major metric is better; without settings, from the way `best_score` went."""
        if "ascending_metric" in self.settings:
            return bool(self.settings["ascending_metric"])
        scores = self.valid["best_score"]
        known = scores[np.isfinite(scores)]
        return len(known) == 0 or bool(known[-1] >= known[0])

    @property
    def best_row(self) -> int | None:
        """Give the index in `valid` of the first best evaluation, None when there is none."""
        scores = self.major_scores
        if np.isnan(scores).all():
            return None
        return int(np.nanargmax(scores) if self.ascending else np.nanargmin(scores))

    @property
    def major_scores(self) -> Floats:
        """Give the major metric of each evaluation; without settings the best so far, which serves as well."""
        metric = f"valid_{self.settings.get('major_metric')}"
        return self.valid[metric if metric in self.valid else "best_score"]


def read_run(folder: str) -> RunLogs:
    """Read what is there of a run in `folder` (any path). A log that does not exist yet is an empty table."""
    args_file = newest_args(folder)
    settings = read_args(args_file) if args_file else {}
    return RunLogs(folder, read_table(io.join(folder, TRAIN_LOG)), read_table(io.join(folder, VALID_LOG)), settings)


def read_table(path: str) -> Table:
    """Read a log that may still be growing. What has not changed since the last reading is not parsed again."""
    if not io.exists(path):
        return Table()
    stamp = (io.size(path), str(io.last_modified(path)))
    known = _parsed.get(path)
    if known and known[0] == stamp:
        return known[1]
    with io.open(path, encoding="utf-8") as log_file:
        table = parse_table(log_file.read())
    while len(_parsed) >= _MOST_PARSED:
        _parsed.pop(next(iter(_parsed)))
    _parsed[path] = (stamp, table)
    return table


def parse_table(text: str) -> Table:
    """Parse a log with a header.

    A last line without its line end is still being written, so it is left out. A second header starts further columns.
    Where a run was resumed from an earlier step, the rows that it walked a second time replace the first ones.
    """
    lines = text.split("\n")[:-1]
    starts = [index for index, line in enumerate(lines) if line.startswith("epoch\tstep")]
    parts = [
        _columns(lines[start].split("\t"), lines[start + 1 : end]) for start, end in pairwise([*starts, len(lines)])
    ]
    return _without_rewalked(_stack(parts))


def _columns(header: list[str], lines: Iterable[str]) -> dict[str, Floats]:
    rows = [line.split("\t") for line in lines if line]
    width = len(header)
    padded = [row if len(row) == width else (row + [""] * width)[:width] for row in rows]
    return {name: _floats(cells) for name, cells in zip(header, zip(*padded, strict=True), strict=False)}


def _floats(cells: Iterable[str]) -> Floats:
    cells = list(cells)
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array([_float(cell) for cell in cells])


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _stack(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    parts = [part for part in parts if part]
    if len(parts) <= 1:
        return parts[0] if parts else {}
    names = dict.fromkeys(name for part in parts for name in part)
    absent = [np.full(len(part["step"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nans) for part, nans in zip(parts, absent, strict=True)]) for name in names
    }


def _without_rewalked(columns: dict[str, Floats]) -> Table:
    steps = columns.get("step", np.empty(0))
    if not len(steps):
        return Table()
    lowest_later = np.append(np.minimum.accumulate(np.nan_to_num(steps, nan=np.inf)[::-1])[::-1][1:], np.inf)
    kept = steps < lowest_later
    return Table(columns if kept.all() else {name: values[kept] for name, values in columns.items()})
