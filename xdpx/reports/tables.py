"""Format rows of cells as text: aligned columns for a terminal, or tab separated values for a file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def format_cell(value: object) -> str:
    """Return a short text for one value: floats with up to six significant digits, '' for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("\t", " ").replace("\r", " ").replace("\n", " ")


def union_of_keys(rows: Iterable[Mapping[str, Any]], *, first: Sequence[str] = ()) -> list[str]:
    """Return every key of `rows` once: those of `first` that occur, then the others in order of first appearance."""
    seen = dict.fromkeys(key for row in rows for key in row)
    return [*(key for key in first if key in seen), *(key for key in seen if key not in set(first))]


def as_tsv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, header: bool = True) -> str:
    """Return tab separated lines, each with a line end."""
    lines = ["\t".join(columns)] if header else []
    lines += ["\t".join(format_cell(row.get(column)) for column in columns) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def as_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return lines with aligned columns for a terminal: numbers to the right, wide characters counted as two."""
    cells = [[format_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max([text_width(name), *(text_width(line[i]) for line in cells)]) for i, name in enumerate(columns)]
    right = [all(isinstance(row.get(column), (int, float, type(None))) for row in rows) for column in columns]
    rule = ["-" * width for width in widths]
    lines = [list(columns), rule, *cells]
    return "".join(f"{_line(line, widths, right)}\n" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (_pad(cell, width, right=side) for cell, width, side in zip(cells, widths, right, strict=True))
    return "  ".join(padded).rstrip()


def _pad(text: str, width: int, *, right: bool) -> str:
    spaces = " " * (width - text_width(text))
    return spaces + text if right else text + spaces


def text_width(text: str) -> int:
    """Return how many terminal columns a text takes: Chinese characters and the like take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
