"""Lists in the cells of a table: labels of a row, words of a sentence, and the tags of these words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdpx.datasets.guessing.decision import question
from xdpx.datasets.guessing.tagging import are_tags, joined, plain_tag
from xdpx.loaders.parsers.base import Row

LISTED = "\x1f"
"""Separator of the items of a list in one cell of a table: the character that ASCII has for it, which no text holds."""

_ITEM = re.compile(r"""'([^']*)'|"([^"]*)"|([-+.\w]+)""")
_LIST = re.compile(rf"\[\s*((?:(?:{_ITEM.pattern.replace('(', '(?:')})\s*(?:,\s*(?!\])|(?=\])))*)\]")
"""A list with commas between its items; NumPy writes blanks, and then items cannot be told from one another."""


def without_brackets(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with lists, as pandas writes them, joined like lists of JSON, in columns of nothing else."""
    columns = []
    for column in zip(*rows, strict=True):
        lists = [_joined(cell) if cell.strip() else "" for cell in column]
        columns.append(column if None in lists or not any(lists) else lists)
    return [list(row) for row in zip(*columns, strict=True)]


def _joined(cell: str) -> str | None:
    """Return the items of a list as Python and JSON write it, joined; None for other cells."""
    if not (inner := _LIST.fullmatch(cell.strip())):
        return None
    return LISTED.join(next(filter(None, found), "") for found in _ITEM.findall(inner[1]))


def tagged_lists(path: str, names: Sequence[str], rows: Sequence[Row]) -> tuple[list[str], list[Row]] | None:
    """Return (names, rows) of words and tags, each joined by spaces; None if rows have no two such lists.

    Raises:
        ConfigError: tags are numbers.
    """
    columns = list(zip(*rows, strict=True))
    lists = [index for index, column in enumerate(columns) if any(LISTED in cell for cell in column)]
    cut = [[cell.split(LISTED) for cell in columns[index]] for index in lists]
    if len(lists) != 2 or any(len(one) != len(other) for one, other in zip(*cut, strict=True)):
        return None
    items = [{item for row in column for item in row} for column in cut]
    tags = next((index for index in range(2) if are_tags(items[index])), None)
    numbers = next((index for index in range(2) if all(map(str.isdecimal, items[index]))), None)
    if tags is None and numbers is not None:
        problem = f"has a number for each word in '{names[lists[numbers]]}', which does not tell the tag."
        raise question(path, "label", problem, "Write names, such as O, B-PER and I-PER, instead of the numbers.")
    if tags is None:
        return None
    pairs = zip(cut[1 - tags], cut[tags], strict=True)
    return [names[lists[1 - tags]], names[lists[tags]]], [
        [joined(words), joined(map(plain_tag, own))] for words, own in pairs
    ]
