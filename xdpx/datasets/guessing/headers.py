"""Tell rows that name the columns, or that draw a line below these names, from rows of data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from xdpx.datasets.findings.raw_files import FEWEST, LABEL_NAMES, is_column_name, numbers_columns, repeats
from xdpx.datasets.guessing.decimals import with_point
from xdpx.datasets.guessing.decision import question
from xdpx.loaders.parsers.base import Row
from xdpx.loaders.parsers.csv import DELIMITERS
from xdpx.tokenizers.target_map import folded, number_of

LONGEST_NAME = 80
"""Maximum length of the name of a column in characters; such as a question of a form."""

DEEPEST = 20
"""Number of rows among which the names of the columns are looked for, below a title."""

TOTALS = frozenset({"total", "totals", "grand total", "sum", "summe", "gesamt", "合计", "总计", "总数", "共计"})
"""What the last row of a table of a spreadsheet begins with, if it counts or adds up the others."""

_DASHES = re.compile(r"\s*:?-{3,}:?\s*")
"""A cell of the line between names and rows, in tables of Markdown and of databases."""


def has_header(rows: Sequence[Row]) -> tuple[bool, Any]:
    """Return (whether the first row names the columns, how sure)."""
    first, others = [folded(cell.strip("\"' ")) for cell in rows[0]], rows[1:]
    there = [cell for cell in first if cell]  # pandas writes no name for the column of row numbers
    if len(rows) < FEWEST:
        return all(map(is_column_name, first)), "a guess"
    if numbers_columns(first, others):
        return True, "likely"
    if any(number_of(cell) is not None for cell in there):
        return False, "certain"
    known = sum(map(is_column_name, there))
    stands_out = any(_stands_out(cell, [row[column] for row in others]) for column, cell in enumerate(first) if cell)
    if known and (stands_out or known == len(there)):
        return True, "certain"
    if len(set(there)) < len(there) or max(map(len, there)) > LONGEST_NAME:
        return False, "certain"
    if stands_out:
        return True, "likely"
    return False, "likely" if known else "certain"


def rows_above_names(rows: Sequence[Row]) -> int:
    """Return how many rows precede the names of the columns, such as a title; 0 if none seem to.

    Each has fewer filled cells than the names below it, which are common names unless each has one cell at most.
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows[:DEEPEST]]
    for place in range(1, len(filled)):
        most = max(filled[:place])
        header, sure = has_header(rows[place:]) if most < filled[place] else (False, "certain")
        if header and (sure == "certain" or (most == 1 and sure == "likely")):
            return place
    return 0


def told_above(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the description of rows above the names of the columns; () for none."""
    if not rows:
        return ()
    shown = next((cell.strip() for row in rows for cell in row if cell.strip()), "")
    plural = f"{len(rows)} rows" if len(rows) > 1 else "a row"
    return (f"{plural} above the names of the columns: {shown!r:.60}",)


def _stands_out(name: str, cells: Sequence[str]) -> bool:
    """Return whether the first cell of a column differs in kind from those below it."""
    if all(number_of(cell) is not None for cell in cells):
        return number_of(name) is None
    values = {folded(cell) for cell in cells}
    return repeats(values, len(cells)) and name not in values


def rows_of_data(rows: Sequence[Row], header: Row | None) -> tuple[list[Row], list[str]]:
    """Return the rows that are data, and a description of what others there are.

    These are headers between them, as in files that were joined, a line of dashes below the header, and a total.

    Args:
        rows: all below the header, if there is one.
        header: the names of the columns; None if the first row is data.
    """
    named = None if header is None else [name_in(cell) for cell in header]
    folds = [[folded(name_in(cell)) for cell in row] for row in rows]
    again = [named is not None and fold == [folded(name) for name in named] for fold in folds]
    others = _name_columns(folds)
    lines = [bool(any(row)) and all(not cell or _DASHES.fullmatch(cell) for cell in row) for row in rows]
    totals = [place == len(rows) - 1 and _is_total(row) for place, row in enumerate(rows)]
    kept = [row for row, *odd in zip(rows, again, others, lines, totals, strict=True) if not any(odd)]
    found = []
    if times := sum(again):
        found.append(f"{times:,} rows that repeat the header" if times > 1 else "a row that repeats the header")
    if renamed := [row for row, repeated, other in zip(rows, again, others, strict=True) if other and not repeated]:
        shown = ", ".join(map(repr, renamed[0]))
        plural = f"{len(renamed):,} rows" if len(renamed) > 1 else "a row"
        found.append(f"{plural} with names of columns: {shown:.80}")
    if any(lines):
        found.append("a row of dashes")
    if any(totals):
        found.append(f"a total in the last row: {', '.join(filter(None, rows[-1])):.60}")
    return kept, found


def _is_total(row: Row) -> bool:
    """Return whether a row consists of the word for a total and of numbers."""
    cells = [cell.strip() for cell in row if cell.strip()]
    figures = all(number_of(with_point(cell)) is not None for cell in cells[1:])
    return len(cells) > 1 and folded(cells[0].rstrip(":： ")) in TOTALS and figures


def _name_columns(folds: Sequence[Row]) -> list[bool]:
    """Return for each row whether all its cells are names of columns, and its label occurs in no other row."""
    named = [
        len(row) > 1 and all(map(is_column_name, row)) and len(set(row)) == len(row) and not LABEL_NAMES.isdisjoint(row)
        for row in folds
    ]
    if not any(named):
        return named
    inside = Counter(
        (column, cell) for row, odd in zip(folds, named, strict=True) if odd for column, cell in _labels(row)
    )
    counts = Counter(place for row in folds for place in _labels(row))
    return [
        odd and all(counts[place] == inside[place] for place in _labels(row))
        for row, odd in zip(folds, named, strict=True)
    ]


def _labels(row: Row) -> list[tuple[int, str]]:
    return [(column, cell) for column, cell in enumerate(row) if cell in LABEL_NAMES]


def header_of_rows(path: str, first: Row, rows: Sequence[Row], delimiter: str) -> Row | None:
    """Return the header for rows of another width than the first row of the file; None if that is no header.

    R writes a column of row names in front, which has no name; other programs end each row with a delimiter.

    Raises:
        ConfigError: the first row names columns, so the rows below were split too often or too rarely.
    """
    if not all(is_column_name(folded(name_in(cell))) for cell in first if cell.strip()):
        return None
    width = len(rows[0])
    keys = [row[0] for row in rows]
    if len(first) == width - 1 and len(set(keys)) == len(keys) and all(name_in(key).isdecimal() for key in keys):
        return ["", *first]
    if not any(cell.strip() for row in rows for cell in row[len(first) :]) and width > len(first):
        return [*first, *[""] * (width - len(first))]
    named = ", ".join(name_in(cell) for cell in first)
    shown = DELIMITERS.get(delimiter, repr(delimiter))
    problem = f"{shown} splits the first line into {len(first)} names ({named}), but most rows into {width} cells, "
    problem += f"such as {delimiter.join(rows[0])!r:.80}."
    remedy = f"Put double quotes around cells that contain {shown}; or give another: delimiter=..."
    raise question(path, "delimiter", problem, remedy)


def name_in(cell: str) -> str:
    """Return a cell of a header without quotes, white space and the byte order mark of a file that was joined."""
    return cell.strip("\ufeff \t\r\n").strip('"')
