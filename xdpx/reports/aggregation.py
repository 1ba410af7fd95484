"""One table of many runs: the best row of each and, with `full`, their speed and the settings in which they differ."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xdpx.config.loading import RUN_ONLY_KEYS
from xdpx.reports.run_logs import RunLogs, read_run
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.utils import io

LIVE_SECONDS = 60
"""A run whose logs were modified less than this many seconds ago counts as running."""

_NOT_COMPARED = RUN_ONLY_KEYS | {"__version__"}


def find_runs(roots: Iterable[str], keywords: Sequence[str] = ()) -> list[str]:
    """Return the folders below `roots` that hold an evaluation log and whose path contains every keyword, sorted.

    A run below several of the roots is returned once.
    """
    found = []
    for root in roots:
        if not io.isdir(root):
            raise FileNotFoundError(f"{root}: no such folder; give the folder that holds the runs.")
        paths = io.listdir(root, recursive=True, full_path=True)
        found += [io.parent(path) for path in paths if io.name(path) == VALID_LOG]
    wanted = sorted(run for run in found if all(word in run for word in keywords))
    return sorted({io.abspath(run): run for run in reversed(wanted)}.values())


def aggregate(folders: Sequence[str], *, full: bool = False) -> list[dict[str, Any]]:
    """Return one row for each run that has been evaluated; with `full`, sorted by score, best first, per major metric.

    A row starts with `run` (prefixed with `*` while it is being written), `best_score` and `step`, followed by the
    metrics of the run's evaluation log at that step.
    """
    found = (read_run(folder, train=False, thinned=True) for folder in folders)
    runs = [run for run in found if run.best_row is not None]
    rows = [_best_row(run) for run in runs]
    if not full:
        return rows
    differing = differing_settings([run.settings for run in runs])
    rows = [
        {**row, **_speed(run), **{key: run.settings.get(key) for key in differing}}
        for row, run in zip(rows, runs, strict=True)
    ]
    metrics = list(dict.fromkeys(run.settings.get("major_metric") for run in runs))
    places = [
        (metrics.index(run.settings.get("major_metric")), -row["best_score"] if run.ascending else row["best_score"])
        for row, run in zip(rows, runs, strict=True)
    ]
    return [row for _, row in sorted(zip(places, rows, strict=True), key=lambda each: each[0])]


def _best_row(run: RunLogs) -> dict[str, Any]:
    row = run.valid.row(run.best_row or 0)
    step, score = row.pop("step"), _score(run, row)
    row.pop("best_score", None)
    mark = "*" if _is_live(run.folder) else ""
    metrics = {name: value for name, value in row.items() if name.startswith("valid_")}
    others = {name: value for name, value in row.items() if name.startswith("train_") and name != "train_wall"}
    return {"run": f"{mark}{run.folder}", "best_score": score, "step": int(step), **metrics, **others}


def _score(run: RunLogs, row: Mapping[str, float]) -> float:
    return row.get(f"valid_{run.settings.get('major_metric')}", row.get("best_score", float("nan")))


def _is_live(folder: str) -> bool:
    logs = [io.join(folder, name) for name in (TRAIN_LOG, VALID_LOG)]
    touched = max(float(io.last_modified(path)) for path in logs if io.exists(path))
    return time.time() - touched < LIVE_SECONDS


def _speed(run: RunLogs) -> dict[str, float]:
    """Return the median updates and tokens per second, the total training seconds and the last step."""
    middle = {name: float(np.nanmedian(run.valid[name])) for name in ("ups", "wps") if name in run.valid}
    walls = run.valid["train_wall"]
    last = {"train_wall": float(walls[-1])} if len(walls) and np.isfinite(walls[-1]) else {}
    return {**middle, **last, "last_step": float(run.valid["step"][-1])}


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all of `settings`, in order of first appearance."""
    keys = dict.fromkeys(key for each in settings for key in each if key not in _NOT_COMPARED)
    return [key for key in keys if any(each.get(key) != settings[0].get(key) for each in settings[1:])]
