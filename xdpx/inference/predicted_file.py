"""Read back files that x-pred wrote, by the names of their columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.hints import shown
from xdpx.logger import log
from xdpx.tokenizers.target_map import TargetMap, folded
from xdpx.utils import io


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of each line of tab separated text that is not empty, whether lines end with LF or CRLF."""
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line.split("\t") for line in lines if line]


def read_header(path: str) -> list[str]:
    """Return the names of the columns of a tab separated file. Raises ConfigError if it is not UTF-8 text."""
    with io.open(path, "rb") as file:
        return next(iter(rows_of(_text_of(path, file.readline()))), [])


def _text_of(path: str, found: bytes) -> str:
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"is not text: byte {error.start + 1} is not UTF-8."
        raise ConfigError(path, [Fault("predict_file", problem, "Name a file that x-pred wrote.")]) from error


def read_columns(path: str, names: Sequence[str], keys: Sequence[str] = ()) -> list[list[str]]:
    """Return the cells of some columns of a tab separated file with a header.

    Args:
        path: the file.
        names: of the columns.
        keys: the parameters that hold these names, for messages.

    Raises:
        ConfigError: it is not UTF-8 text, a column is missing, or a line is too short.
    """
    with io.open(path, "rb") as file:
        header, *rows = rows_of(_text_of(path, file.read())) or [[]]
    for name, key in zip(names, keys or ["predict_file"] * len(names), strict=True):
        if name not in header:
            remedy = did_you_mean(name, header, "Predict with header: true and concat_origin: true.")
            raise ConfigError(path, [Fault(key, f"there is no column '{name}'.", remedy)])
    # Of columns with the same name the last one counts: x-pred appends its own to those of the user.
    places = [len(header) - 1 - header[::-1].index(name) for name in names]
    short = [number for number, row in enumerate(rows, 2) if len(row) <= max(places)]
    if short:
        problem = f"line {short[0]} has {len(rows[short[0] - 2])} columns, the header {len(header)}."
        raise ConfigError(path, [Fault("predict_file", problem, "Predict again.")])
    return [[row[place] for row in rows] for place in places]


def labels_of(path: str, wanted: Sequence[str], found: Sequence[str]) -> TargetMap:
    """Return the classes that occur among correct and predicted labels, sorted. Warns of rows without a prediction.

    Raises:
        ConfigError: labels and predictions have nothing in common: they are written differently, such as 1 and pos.
    """
    of_rows, of_predictions = ({folded(cell): cell.strip() for cell in cells} for cells in (wanted, found))
    if min(len(of_rows), len(of_predictions)) > 1 and not of_rows.keys() & of_predictions.keys():
        told = [", ".join(map(shown, sorted(each.values())[:3])) for each in (of_predictions, of_rows)]
        problem = f"none of the predictions ({told[0]}) is one of the labels ({told[1]})."
        raise ConfigError(path, [Fault("predictions", problem, "Write both in the same way.")])
    if "" in of_predictions and "" not in of_rows:
        empty = sum(not cell.strip() for cell in found)
        log.warning(f"{path}: {empty:,} of {len(found):,} rows have no prediction, which counts as a class of its own")
    return TargetMap(sorted({**of_rows, **of_predictions}.values()))


def read_classes(path: str, cells: Sequence[str], known: TargetMap, key: str) -> NDArray[np.int64]:
    """Return the class of each label. Raises ConfigError for a label that the target map lacks."""
    found = known.classes(cells)
    if len(found) and found.min() < 0:
        label = cells[int(found.argmin())]
        remedy = did_you_mean(label, known.labels, "Give the target_map.txt of the predicted data.")
        raise ConfigError(path, [Fault(key, f"contains '{label}', which is not a label.", remedy)])
    return found


def read_probabilities(path: str, cells: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities (N, C) that x-pred wrote as lists. Raises ConfigError if they are invalid."""
    prob = _numbers_in(cells)
    if prob is None or prob.ndim != 2:
        widths = [len(each) if isinstance(each, list) else 0 for each in map(_value_in, cells)]
        line, count = next(((number, n) for number, n in enumerate(widths, 2) if not n or n != widths[0]), (2, 0))
        problem = f"line {line} contains {count} probabilities, line 2 contains {widths[0]}."
        if not count:
            problem = f"line {line} contains no list of probabilities in 'prob'."
        raise ConfigError(path, [Fault("predict_file", problem, "Predict with x-pred, and only rows that have texts.")])
    return prob


def _numbers_in(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the numbers (N,), or lists of numbers (N, C), that are written in cells; None if some hold others."""
    try:
        found = np.array(_value_in(f"[{','.join(cells)}]"), np.float64)
    except (ValueError, TypeError):  # lists of different lengths, or texts
        return None
    return found if len(cells) and found.ndim and len(found) == len(cells) else None


def _value_in(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def columns_of_labels(has_NL: NDArray[np.bool_], may_be_NC: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return the column of `prob` that belongs to each label, (L,); None if the rows leave open which it is.

    Args:
        has_NL: which labels each row has.
        may_be_NC: the columns that its labels may belong to, as they have the probability that is written for these.
    """
    fits_LC = (has_NL.T.astype(np.float32) @ ~may_be_NC) == 0
    found = np.full(len(fits_LC), -1)
    while len(sure := np.flatnonzero(fits_LC.sum(axis=1) == 1)):
        columns = fits_LC[sure].argmax(axis=1)
        if len(np.unique(columns)) < len(columns):
            return None
        found[sure] = columns
        fits_LC[:, columns] = False  # which may leave one column for another label
    return found if (found >= 0).all() else None


def columns_of_classes(
    wanted_NL: NDArray[np.bool_], found_NL: NDArray[np.bool_], prob_NC: NDArray[np.float64], target_prob: Sequence[str]
) -> NDArray[np.int64] | None:
    """Return the column of `prob` that belongs to each label, (L,); None if the rows leave open which it is.

    Args:
        wanted_NL: the correct label of each row.
        found_NL: the predicted one.
        prob_NC: probabilities.
        target_prob: cells with the probability of the correct label; empty if the file has none.
    """
    of_target = _numbers_in(target_prob)
    if of_target is not None and of_target.ndim == 1:
        columns = columns_of_labels(wanted_NL, prob_NC == of_target[:, None])
        if columns is not None:
            return columns
    return columns_of_labels(found_NL, prob_NC == prob_NC.max(axis=1, keepdims=True))
