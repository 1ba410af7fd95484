"""Pages of rows of a prediction file, errors first, sorted by how confident the model was."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import numpy as np

from xdpx.board.safe_files import NotShown
from xdpx.config.faults import ConfigError
from xdpx.inference.predicted_file import SEEN_ROWS, read_labels, rows_of, true_column
from xdpx.metrics import judge_tags
from xdpx.metrics.judging import LABEL_COLUMNS, NUMBER_COLUMNS, TAG_COLUMNS
from xdpx.reports.histories import records_of
from xdpx.utils import io
from xdpx.utils.redaction import redact

LARGEST = 64 << 20
"""The most bytes of a file that are read."""
PREDICTED = ("pred", "prediction", *NUMBER_COLUMNS, *TAG_COLUMNS)
"""Columns of predictions: of x-pred, of decoders (`prediction`), or of other programs."""
QUERIES = "query_id"
"""A column of candidates that are ranked for a query: their scores are right or wrong only among each other."""
LONGEST_CELL = 2_000


@dataclass(frozen=True)
class Predictions:
    """Rows of a prediction file.

    Attributes:
        columns: column names.
        rows: cells as text.
        predicted, true: indices of the columns with the prediction and the true value; -1 if unknown.
        errors: indices of the wrong rows, the most confident first, of tags those with the most wrong entities; for
            numbers, all rows, the largest error first.
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
    return _judged(path, columns, rows, cut=len(data) > LARGEST)


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


def _judged(path: str, columns: list[str], rows: list[list[str]], *, cut: bool) -> Predictions:
    places = {
        name.strip().lower(): place for place, name in enumerate(columns)
    }  # of a name, the last: x-pred adds its own
    kind = next((name for name in PREDICTED if name in places), "")
    predicted = places.get(kind, -1)
    true = true_column(columns, rows, predicted) if predicted >= 0 and QUERIES not in places else -1
    if true < 0:
        return Predictions(columns, rows, predicted, true, [], is_number=False, cut=cut)
    whole = [index for index, row in enumerate(rows) if len(row) > max(predicted, true)]

    def cells(place: int) -> list[str]:
        return [rows[index][place] if 0 <= place < len(rows[index]) else "" for index in whole]

    wanted, found = cells(true), cells(predicted)
    is_number = _are_numbers(found[:SEEN_ROWS], whole=kind in NUMBER_COLUMNS)
    if is_number:
        errors = _largest_first(wanted, found)
    elif kind in TAG_COLUMNS:
        targets, preds = ([cell.split() for cell in each] for each in (wanted, found))
        errors = judge_tags(targets, preds, np.arange(len(whole))).worst(len(whole)).tolist()
    else:
        shares, of_true = cells(places.get("prob", -1)), cells(places.get("target_prob", -1))
        try:
            wrong = _wrong(path, kind, wanted, found, of_true)
        except ConfigError:  # it is unknown what separates the labels of a row
            return Predictions(columns, rows, predicted, -1, [], is_number=False, cut=cut)
        surest = {row: _probability_of_wrong(shares[row], of_true[row]) for row in wrong}
        errors = sorted(wrong, key=lambda row: -surest[row])
    return Predictions(columns, rows, predicted, true, [whole[each] for each in errors], is_number=is_number, cut=cut)


def _largest_first(wanted: Sequence[str], found: Sequence[str]) -> list[int]:
    """Return the rows whose numbers are finite, the largest error first."""
    sizes = [abs(_float(one) - _float(other)) for one, other in zip(wanted, found, strict=True)]
    return sorted((row for row, size in enumerate(sizes) if math.isfinite(size)), key=lambda row: -sizes[row])


def _wrong(
    path: str, kind: str, wanted: Sequence[str], found: Sequence[str], target_prob: Sequence[str]
) -> Sequence[int]:
    """Return the rows with a wrong prediction. Raises ConfigError if it is unknown what separates labels of a row."""
    if kind in LABEL_COLUMNS:
        wrong: list[int] = np.flatnonzero(~read_labels(path, wanted, found, target_prob).right).tolist()
        return wrong
    return [row for row, one in enumerate(wanted) if one != found[row]]  # texts that a decoder wrote


def _probability_of_wrong(prob: str, target_prob: str) -> float:
    """Return the probability that a wrong row gave to a wrong answer; -1 if unknown.

    With several labels, the largest error of a label: 1 - p of one of the row, or p of another.
    """
    if not target_prob.startswith("["):
        share = _float(target_prob)
        return 1.0 - share if math.isfinite(share) else -1.0
    try:
        own, others = json.loads(target_prob), json.loads(prob or "[]")
        for share in own:
            if share in others:
                others.remove(share)
        return float(max([*(1.0 - share for share in own), *others], default=-1.0))
    except (ValueError, TypeError, RecursionError):
        return -1.0


def _are_numbers(cells: list[str], *, whole: bool) -> bool:
    """Return whether all cells are numbers, and, unless they may be whole numbers, one has a fraction."""
    values = [_float(cell) for cell in cells]
    return bool(values) and all(map(math.isfinite, values)) and (whole or any(value % 1 for value in values))


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
