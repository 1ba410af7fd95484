"""Read back files that x-pred wrote, by the names of their columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.hints import shown
from xdpx.logger import log
from xdpx.metrics.judging import LABEL_COLUMNS, NUMBER_COLUMNS, TAG_COLUMNS
from xdpx.tokenizers.target_map import TargetMap, folded
from xdpx.utils import io

GIVEN = "input_"
"""Prefix of a column of the input with the name of a predicted one."""
SEPARATOR = ","
"""Between the labels that x-pred writes into a cell."""
TRUE_NAMES = ("target", "label", "labels", "gold", "truth", "true", "class", "y")
SEEN_ROWS = 2_000
"""The rows by which the content of a column is judged."""
TO_COMPARE = "Compare the runs themselves: x-script compare_runs RUN RUN on=FILE."
Cells = Mapping[str, Sequence[str]]
"""Columns that x-pred wrote: name -> a cell for each row."""


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
            raise ConfigError(path, [Fault(key, f"there is no column '{name}'.", _remedy(name, key, header, rows))])
    # Of columns with the same name the last one counts: x-pred appends its own to those of the user.
    places = [len(header) - 1 - header[::-1].index(name) for name in names]
    short = [number for number, row in enumerate(rows, 2) if len(row) <= max(places)]
    if short:
        problem = f"line {short[0]} has {len(rows[short[0] - 2])} columns, the header {len(header)}."
        raise ConfigError(path, [Fault("predict_file", problem, "Predict again.")])
    return [[row[place] for row in rows] for place in places]


def _remedy(name: str, key: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    otherwise = "Predict with header: true and concat_origin: true."
    predicted = next((header.index(each) for each in ("pred", "score", "tags") if each in header), -1)
    if key == "target_col_name" and predicted >= 0:
        found = true_column(header, rows, predicted)
        if found >= 0:
            return f"If the labels are in '{header[found]}': target_col_name={header[found]}"
        header = [each for each in header if each not in {*LABEL_COLUMNS, *TAG_COLUMNS, *NUMBER_COLUMNS}]
        if header:
            otherwise = f"Name the column of the labels: target_col_name={header[-1]}, for example."
    return did_you_mean(name, header, otherwise)


def true_column(columns: Sequence[str], rows: Sequence[Sequence[str]], predicted: int) -> int:
    """Return the column of correct answers: by its name, else one whose values are among the predicted ones.

    Args:
        columns: names of the columns.
        rows: cells.
        predicted: the column of predictions; -1 if there is none.

    Returns:
        Its index; -1 if there is none.
    """
    own = [f"{GIVEN}{columns[predicted].strip().lower()}"] if predicted >= 0 else []
    for name in (*TRUE_NAMES, *own):
        for place, column in enumerate(columns):
            if column.strip().lower() == name and place != predicted:
                return place
    seen = [row for row in rows[:SEEN_ROWS] if len(row) == len(columns)]
    if predicted < 0 or not seen:
        return -1
    labels = {folded(row[predicted]) for row in seen}
    for place in range(len(columns)):
        if place != predicted and sum(folded(row[place]) in labels for row in seen) > 0.9 * len(seen):
            return place
    return -1


def read_target_prob(path: str) -> list[str]:
    """Return the cells of the column `target_prob`; an empty list if the file has none."""
    name = "target_prob"
    return read_columns(path, [name])[0] if name in read_header(path) else []


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


class Labels(NamedTuple):
    """The correct and the predicted labels of each row, all in one writing, so that equal cells mean equal labels.

    Attributes:
        wanted, found: the labels in lower case; several in the order of the alphabet, with `separator` between them.
        separator: between the labels of a row; None if each row has one.
    """

    wanted: list[str]
    found: list[str]
    separator: str | None

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which rows have exactly the labels that are predicted, (N,)."""
        return np.array([one == other for one, other in zip(self.wanted, self.found, strict=True)], bool)


def read_labels(
    path: str, wanted: Sequence[str], found: Sequence[str], target_prob: Sequence[str], separator: str | None = None
) -> Labels:
    """Return the labels of each row in one writing.

    Args:
        path: the file, for messages.
        wanted: cells with the correct labels, as the user wrote them.
        found: cells with the predicted ones, as x-pred wrote them.
        target_prob: cells of this column; empty if the file has none.
        separator: between labels; None to find it.

    Raises:
        ConfigError: rows have several labels, and their separator is unknown; or labels contain that of x-pred.
    """
    given = separator_of(path, wanted, target_prob, separator)
    written = given
    if are_of_several(target_prob):
        written = SEPARATOR
        if given != SEPARATOR and any(SEPARATOR in cell for cell in set(wanted)):
            problem = f"contains a label with '{SEPARATOR}', which x-pred writes between labels."
            raise ConfigError(path, [Fault("predictions", problem, TO_COMPARE)])
    return Labels(_in_one_writing(wanted, given, written), _in_one_writing(found, written, written), written)


def _in_one_writing(cells: Sequence[str], separator: str | None, written: str | None) -> list[str]:
    known = {cell: (written or "").join(sorted(labels_in(cell, separator))) for cell in set(cells)}
    return [known[cell] for cell in cells]


def labels_in(cell: str, separator: str | None) -> list[str]:
    """Return the labels in a cell in lower case, each once; the cell itself if rows have one label."""
    parts = [cell] if separator is None else (part for part in cell.split(separator) if part.strip())
    return list(dict.fromkeys(map(folded, parts)))


def are_of_several(target_prob: Sequence[str]) -> bool:
    """Return whether x-pred wrote lists of probabilities, because rows may have several labels or none."""
    return any(cell.startswith("[") for cell in target_prob)


def separator_of(path: str, cells: Sequence[str], target_prob: Sequence[str], given: str | None) -> str | None:
    """Return the separator of the labels in `cells`; None if each row has one label.

    Args:
        path: the file, for messages.
        cells: with the correct labels.
        target_prob: cells of this column: for rows of several labels it lists a probability for each that is known.
        given: the separator if it is known; '' and None: find it.

    Raises:
        ConfigError: no separator cuts rows into as many labels as they have.
    """
    from xdpx.datasets.findings.labels import SEPARATORS, WITHIN_LABELS

    if not are_of_several(target_prob):
        return given or None
    sizes = Counter((cell, _size(shares)) for cell, shares in zip(cells, target_prob, strict=True) if shares)
    fitting: dict[str, int] = {}
    for separator in [given] if given else SEPARATORS + WITHIN_LABELS:
        cut = {(cell, size): len(labels_in(cell, separator)) for cell, size in sizes}
        equal = sum(number for each, number in sizes.items() if cut[each] == each[1])
        if all(count >= size for (_, size), count in cut.items()) and 2 * equal >= sizes.total():
            fitting[separator] = equal  # the other rows have more labels than the model knows
    if not fitting:
        (cell, size), _ = max(cut.items(), key=lambda each: abs(each[1] - each[0][1]))
        problem = f"target_prob tells of {size} labels in {shown(cell)}, but it is unknown what separates them."
        if given:
            problem = f"is '{given}', which does not separate {shown(cell)} into the {size} labels of target_prob."
        remedy = "Give the separator of the data, and target_col_name if the labels are in another column."
        raise ConfigError(path, [Fault("label_separator", problem, remedy)])
    return max(fitting, key=lambda separator: fitting[separator])


def _size(shares: str) -> int:
    """Return the number of items of a list as x-pred writes it."""
    return shares.count(",") + 1 if shares.strip("[] ") else 0


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


def columns_of_classes(
    wanted_NL: NDArray[np.bool_], prob_NC: NDArray[np.float64], written: Cells, best_NL: NDArray[np.bool_] | None = None
) -> NDArray[np.int64] | None:
    """Return the column of `prob` that belongs to each label, (L,); None if the rows leave open which it is.

    Args:
        wanted_NL: the correct labels of each row.
        prob_NC: probabilities.
        written: columns of the file; `target_prob` tells best.
        best_NL: the label of each row with the largest probability; None if rows may have several.
    """
    fits_LC = np.ones((wanted_NL.shape[1], prob_NC.shape[1]), np.bool_)
    listed_NC = _listed(prob_NC, written.get("target_prob", ()))
    if listed_NC is not None:
        fits_LC &= _are_in(wanted_NL, listed_NC)
    columns = _assigned(fits_LC)
    if columns is None and best_NL is not None:
        columns = _assigned(fits_LC & _are_in(best_NL, prob_NC == prob_NC.max(axis=1, keepdims=True)))
    return columns


def misplaced(wanted_NC: NDArray[np.bool_], prob_NC: NDArray[np.float64], target_prob: Sequence[str]) -> int | None:
    """Return the first class of which no row has its `target_prob` in the column of the class; None if there is none.

    Args:
        wanted_NC: the correct classes of each row.
        prob_NC: probabilities.
        target_prob: cells of this column; empty if there is none.
    """
    listed_NC = _listed(prob_NC, target_prob)
    if listed_NC is None:
        return None
    known_NC = wanted_NC & listed_NC.any(axis=1, keepdims=True)
    wrong = np.flatnonzero(known_NC.any(axis=0) & ~(known_NC & listed_NC).any(axis=0))
    return int(wrong[0]) if len(wrong) else None


def _are_in(has_NL: NDArray[np.bool_], may_be_NC: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which columns may belong to each label, (L, C): those that may in every row with this label."""
    found: NDArray[np.bool_] = (has_NL.T.astype(np.float32) @ ~may_be_NC) == 0
    return found


def _assigned(fits_LC: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return the column of each label, (L,), where one fits only; None if that is not so, or it fits others, too."""
    open_LC = fits_LC.copy()
    found = np.full(len(open_LC), -1)
    while len(sure := np.flatnonzero(open_LC.sum(axis=1) == 1)):
        columns = open_LC[sure].argmax(axis=1)
        if len(np.unique(columns)) < len(columns):
            return None
        found[sure] = columns
        open_LC[:, columns] = False  # which may leave one column for another label
    return found if (found >= 0).all() else None


def _listed(prob_NC: NDArray[np.float64], target_prob: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return which probabilities stand in `target_prob`, too; None if it does not contain numbers or lists of them."""
    values = _value_in(f"[{','.join(target_prob)}]")
    if not values or len(values) != len(prob_NC):
        return None
    lists = [each if isinstance(each, list) else [each] for each in values]
    rows = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    try:
        flat = np.array([share for each in lists for share in each], np.float64)
    except (ValueError, TypeError):
        return None
    found = np.zeros(prob_NC.shape, bool)
    np.logical_or.at(found, rows, prob_NC[rows] == flat[:, None])
    return found
