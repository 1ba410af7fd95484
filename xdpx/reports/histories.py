"""Convert JSON logs (`metrics.jsonl`, `logs.jsonl`, `trainer_state.json`) to the two tables of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xdpx.reports.run_logs import Columns
from xdpx.reports.run_tables import COLUMNS, EVAL

COSTS = ("_runtime", "_samples_per_second", "_steps_per_second", "_model_preparation_time")
"""Suffixes of the names of numbers that measure what an evaluation cost."""
SUMMARY = "train_runtime"
"""A key that only the summary at the end of a training has; that record is not a row."""
PLACES = frozenset({"epoch", "step", "time", "phase"})


def records_of(text: str) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines; lines that are not JSON objects are skipped."""
    found = []
    for line in text.split("\n"):
        try:
            record = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def history_of(state: object) -> list[dict[str, Any]]:
    """Return the records in the content of a `trainer_state.json`; [] if it has none."""
    history = state.get("log_history") if isinstance(state, dict) else None
    return [record for record in history if isinstance(record, dict)] if isinstance(history, list) else []


def tables_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Columns]:
    """Return the columns of `train` and `valid`, named as x-train names them, with one row per step."""
    rows: dict[str, dict[float, dict[str, float]]] = {"train": {}, "valid": {}}
    for record in records:
        step = _number(record.get("step"))
        if SUMMARY in record or not math.isfinite(step):
            continue
        is_evaluation = record.get("phase") == "valid" or any(name.startswith(EVAL) for name in record)
        cells = dict(_cells(record, is_evaluation=is_evaluation))
        if cells:
            table = rows["valid" if is_evaluation else "train"]
            epoch = _number(record.get("epoch"))
            row = {"epoch": (math.ceil(epoch) or 1) if math.isfinite(epoch) else 1, "step": step}
            table.setdefault(step, row).update(cells)
    return {name: _columns(list(table.values())) for name, table in rows.items()}


def _cells(record: Mapping[str, Any], *, is_evaluation: bool) -> Iterable[tuple[str, float]]:
    for name, value in record.items():
        number = _number(value) if name not in PLACES else math.nan
        if isinstance(value, str) and math.isnan(number) and value != "nan":
            continue
        if name in PLACES or name.endswith(COSTS) or not isinstance(value, int | float | str):
            continue
        held_out = is_evaluation and name.startswith(EVAL)
        yield (f"valid_{name.removeprefix(EVAL)}" if held_out else COLUMNS.get(name, name)), number


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _columns(rows: list[dict[str, float]]) -> Columns:
    rows.sort(key=lambda row: row["step"])
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
