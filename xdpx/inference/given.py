"""Rows that come from a program, not a file: any iterable of texts -> rows, each a list of strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from itertools import islice
from typing import Any

import numpy as np

from xdpx.config.faults import ConfigError, Fault, shortened
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, Rows, valid
from xdpx.loaders.tagged import TaggedLoader

SHOWN = 5
"""Most rows that an error names."""


class GivenRows(RowParser):
    """A parser of rows that are already in memory."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(self.Parameters())
        self._rows = rows

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield each row with its number, from 1."""
        del path
        yield from enumerate(self._rows, start=1)


def rows_of(given: object, loader: Loader, *, what: str = "texts") -> list[Row]:
    """Return rows of unlabelled texts from the argument of a caller.

    Args:
        given: a list, or any other ordered iterable: a column of a table, an array. Each item is a text; for a model
            of several texts a tuple, a list, or a dict by name; for a tagging model also the list of words.
        loader: of the model, which decides how many texts a row has.
        what: name of the argument, for messages.

    Raises:
        ConfigError: some rows are not texts, or have the wrong number of texts; the first of them are named.
    """
    rows, faults = [], []
    for index, one in enumerate(_items(given, loader, what)):
        try:
            rows.append(_row(one, index, loader))
        except ValueError as error:
            faults.append(Fault(f"{what}[{index}]", f"{error}", _wanted(loader)))
    if not faults:
        bad = valid(Rows(rows, range(len(rows)), [])).bad
        faults = [Fault(f"{what}[{index}]", f"{problem}.", "Clean the text first.") for index, problem in bad]
    if faults:
        raise _refusal(faults)
    return rows


def with_labels(rows: Sequence[Row], given: object, loader: Loader) -> list[Row]:
    """Return rows with their label as the last column.

    Args:
        rows: as `rows_of` returns them.
        given: a label for each row, as it stands in the training data; a list of labels if rows may have several.
        loader: of the model.

    Raises:
        ConfigError: there are more or fewer labels than rows, a label is invalid, or the model has no labels.
    """
    if not loader.num_targets:
        raise _refusal([Fault("labels", "are given, but this model learns from texts alone.", "Leave them out.")])
    labels = list(_items(given, loader, "labels"))
    if len(labels) != len(rows):
        problem = f"are {len(labels):,}, but there are {len(rows):,} texts."
        raise _refusal([Fault("labels", problem, "Give one for each text.")])
    cells, faults = [], []
    for index, label in enumerate(labels):
        try:
            cells.append(_label(label, loader))
        except ValueError as error:
            faults.append(Fault(f"labels[{index}]", str(error), "Give the label as the training data write it."))
    if faults:
        raise _refusal(faults)
    return [[*row, cell] for row, cell in zip(rows, cells, strict=True)]


def _items(given: object, loader: Loader, what: str) -> Iterable[object]:
    """Return the items; raise ConfigError for an iterable that does not yield rows, or has no fixed order."""
    several = f"[({', '.join(f'{name}_a' for name in loader.column_names)}), ...]"
    right = '["..."]' if len(loader.column_names) == 1 else several
    if isinstance(given, str | bytes):
        raise _refusal([Fault(what, "is a single text.", f"Give a list: {right}.")])
    if isinstance(given, Mapping | AnySet):
        kind = type(given).__name__
        raise _refusal([Fault(what, f"is a {kind}, which has no order of rows.", f"Give a list: {right}.")])
    if not isinstance(given, np.ndarray) and len(getattr(given, "shape", ())) > 1:  # tables iterate over column names
        problem = f"is a {type(given).__name__} of {given.shape[1]} columns."  # type: ignore[attr-defined]
        remedy = 'Give one, such as table["text"]; or several: list(zip(table["a"], table["b"])).'
        raise _refusal([Fault(what, problem, remedy)])
    if not isinstance(given, Iterable):
        raise _refusal([Fault(what, f"is {_shown(given)}.", f"Give a list: {right}.")])
    return given


def _row(one: object, index: int, loader: Loader) -> Row:
    """Return the columns of a row.

    Raises:
        ValueError: they are not what the loader reads; the text says what they are.
    """
    if isinstance(one, Mapping):
        absent = [name for name in loader.column_names if name not in one]
        if absent:
            raise ValueError(f"has no '{absent[0]}', but {', '.join(map(str, islice(one, SHOWN))) or 'nothing'}.")
        one = [one[name] for name in (*(name for name in loader.before if name in one), *loader.column_names)]
    if isinstance(one, str):
        cells: list[Any] = [one]
    elif isinstance(one, list | tuple | np.ndarray):
        cells = list(one)
    else:
        raise ValueError(f"is {_shown(one)}.")
    wrong = next((cell for cell in cells if not isinstance(cell, str)), None) if cells else None
    if cells and any(not isinstance(cell, str) for cell in cells):
        raise ValueError(f"holds {_shown(wrong)}.")
    row = [str(cell) for cell in cells]
    if isinstance(loader, TaggedLoader) and not isinstance(one, str):
        return [_sentence(row)]
    if loader.before and len(row) == loader.num_sections:
        row = [row[0].strip() or str(index), *row]  # candidates of the same text are ranked together
    if loader.is_labelled(row) is not False:
        raise ValueError(f"is {'a text' if len(row) == 1 else f'a row of {len(row)} texts'}.")
    return row


def _sentence(words: Row) -> str:
    for word in words:
        if word.split() != [word]:
            raise ValueError(f"holds the word {word!r}, which is empty or contains a space.")
    return " ".join(words)


def _label(label: object, loader: Loader) -> str:
    separator = getattr(loader.parameters, "label_separator", None) or " "
    if loader.several_labels and isinstance(label, list | tuple | np.ndarray):
        parts = [_label(each, loader) for each in label]
        apart = next((part for part in parts if separator in part), None)
        if apart is not None:
            raise ValueError(f"holds {apart!r}, which contains {separator!r}, the separator of labels.")
        return str(separator).join(parts)
    if isinstance(label, bool | np.bool_) or not isinstance(label, str | int | float | np.number):
        raise ValueError(f"is {_shown(label)}.")
    if label != label:
        raise ValueError("is NaN.")
    return str(label)


def _wanted(loader: Loader) -> str:
    names = loader.column_names
    if len(names) > 1:
        return f"Each row of this model is a tuple of {len(names)} texts: {', '.join(names)}."
    words = ", or the list of its words" if isinstance(loader, TaggedLoader) else ""
    return f"Each row of this model is one text{words}."


def _shown(value: object) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "None" if value is None else "NaN"
    return f"a {type(value).__name__}, {shortened(repr(value), 40)}"


def _refusal(faults: list[Fault]) -> ConfigError:
    more = len(faults) - SHOWN
    rest = [Fault("and more", f"{more:,} further rows.")] if more > 0 else []
    return ConfigError("predict", [*faults[:SHOWN], *rest])
