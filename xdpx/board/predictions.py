"""Pages of rows of a prediction file, errors first, sorted by how confident the model was."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from xdpx.board.safe_files import NotShown
from xdpx.inference.predicted_file import SEEN_ROWS, rows_of, true_column
from xdpx.reports.histories import records_of
from xdpx.utils import io
from xdpx.utils.redaction import redact

LARGEST = 64 << 20
"""The most bytes of a file that are read."""
PREDICTED, SURENESS = "pred", "target_prob"
"""Column names of x-pred: the prediction, and the probability of the true class."""
LONGEST_CELL = 2_000


@dataclass(frozen=True)
class Predictions:
    """Rows of a prediction file.

    Attributes:
        columns: column names.
        rows: cells as text.
        predicted, true: indices of the columns with the prediction and the true value; -1 if unknown.
        errors: indices of the wrong rows, the most confident first; for numbers, all rows, the largest error first.
        is_number: whether the predictions are numbers.
        cut: whether the file is longer than what was read.
    """

    columns: list[str]
    rows: list[list[str]]
    predicted: int
    true: int
    errors: list[int]
    is_number: bool
    cut: bool

    def page(self, start: int, count: int, *, errors_first: bool, words: str = "") -> dict[str, object]:
        """Return some rows as JSON values. `words` keeps only the rows that contain this text."""
        wrong = set(self.errors)
        order: Sequence[int] = range(len(self.rows))
        if errors_first:
            order = [*self.errors, *(index for index in order if index not in wrong)]
        if words:
            sought = words.casefold()
            order = [index for index in order if any(sought in cell.casefold() for cell in self.rows[index])]
        shown = [
            {"row": index + 1, "wrong": not self.is_number and index in wrong,
             "cells": [redact(cell[:LONGEST_CELL]) for cell in self.rows[index]]}
            for index in order[start : start + count]
        ]  # fmt: skip
        return {
            "columns": self.columns, "rows": shown, "start": start, "found": len(order), "total": len(self.rows),
            "errors": None if self.true < 0 or self.is_number else len(self.errors),
            "predicted": self.predicted, "true": self.true, "cut": self.cut,
        }  # fmt: skip


def read_predictions(path: str) -> Predictions:
    """Read a prediction file: of x-pred, tab separated, CSV, or JSON lines.

    Raises:
        NotShown: the file cannot be read, or contains no table.
    """
    try:
        with io.open_partly(path) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise NotShown(f"{io.name(path)} cannot be read ({error.strerror or error}).") from error
    text = data[:LARGEST].decode("utf-8-sig", "replace")
    if "\0" in text[:4096]:
        raise NotShown(f"{io.name(path)} is not text.")
    columns, rows = _json_rows(text) if path.endswith(".jsonl") else _rows(text, path)
    if not columns:
        raise NotShown(f"{io.name(path)} contains no table.")
    return _judged(columns, rows, cut=len(data) > LARGEST)


def _rows(text: str, path: str) -> tuple[list[str], list[list[str]]]:
    if path.endswith(".csv"):
        try:
            lines = [row for row in csv.reader(StringIO(text, newline="")) if row]
        except csv.Error as error:
            raise NotShown(f"{io.name(path)} is not a table ({error}).") from error
    else:
        lines = rows_of(text)
    return (lines[0], lines[1:]) if lines else ([], [])


def _json_rows(text: str) -> tuple[list[str], list[list[str]]]:
    records = records_of(text)
    columns = list(dict.fromkeys(name for record in records for name in record))
    return columns, [[_cell(record.get(name, "")) for name in columns] for record in records]


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _judged(columns: list[str], rows: list[list[str]], *, cut: bool) -> Predictions:
    places = {
        name.strip().lower(): place for place, name in enumerate(columns)
    }  # of a name, the last: x-pred adds its own
    predicted = places.get(PREDICTED, places.get("prediction", -1))
    true = true_column(columns, rows, predicted) if predicted >= 0 else -1
    if true < 0:
        return Predictions(columns, rows, predicted, true, [], is_number=False, cut=cut)
    width = max(predicted, true)
    whole = [index for index, row in enumerate(rows) if len(row) > width]
    is_number = _are_numbers([rows[index][predicted] for index in whole[:SEEN_ROWS]])
    if is_number:
        sizes = {index: abs(_float(rows[index][predicted]) - _float(rows[index][true])) for index in whole}
        errors = sorted((index for index in whole if math.isfinite(sizes[index])), key=lambda index: -sizes[index])
    else:
        sureness = places.get(SURENESS, -1)
        errors = [index for index in whole if rows[index][predicted] != rows[index][true]]
        if sureness >= 0:
            errors.sort(key=lambda index: _float(rows[index][sureness]) if len(rows[index]) > sureness else 1.0)
    return Predictions(columns, rows, predicted, true, errors, is_number=is_number, cut=cut)


def _are_numbers(cells: list[str]) -> bool:
    values = [_float(cell) for cell in cells]
    return bool(values) and all(map(math.isfinite, values)) and any(value % 1 for value in values)


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
