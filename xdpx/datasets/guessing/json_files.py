"""Read JSON in the layouts that programs write, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from xdpx.datasets.findings.raw_files import LOOKED_AT
from xdpx.datasets.guessing.decision import question
from xdpx.datasets.guessing.lists import LISTED
from xdpx.loaders.parsers.json import cell

Read = tuple[list[str], list[list[str]], str]
"""Names of the columns, the rows, and a description of the layout."""


def read_json(path: str, text: str) -> Read | None:
    """Return the table in an array of objects, one object per line, or an object of columns or with such an array.

    Returns None if the text is not JSON of this kind.

    Raises:
        ConfigError: the text starts like JSON, but is invalid or has no rows.
    """
    first, lines = text.lstrip()[:1], [line for line in text.split("\n") if line.strip()]
    whole_lines = [line.lstrip()[0] == "{" and line.rstrip(", \t")[-1:] == "}" for line in lines[:LOOKED_AT]]
    if 2 * sum(whole_lines) > len(whole_lines) > 1 or (first == "{" and all(whole_lines)):
        whole = _whole(text) if len(lines) == 1 else None
        return (
            _one_object(path, whole) if isinstance(whole, dict) else as_table(path, _lines(path, lines), "a line each")
        )
    if first == "{":
        return _one_object(path, _array(path, text))
    if first == "[" and isinstance(whole := _whole(text), list):
        return as_table(path, whole, "an array")
    if first == "[" and path.lower().rpartition(".json")[2] in {"", "l", ".gz", "l.gz"}:
        _array(path, text)
    return None


def _whole(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _array(path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise question(path, "file", f"is not JSON ({error}).", "Fix it.") from None


def _lines(path: str, lines: Sequence[str]) -> Iterator[Any]:
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            problem = f"object {number} is not JSON ({error}): {line.strip()!r:.60}."
            remedy = "Write each object on a line of its own, with no comma behind it, and nothing else in the file."
            if line.lstrip("{ ").startswith("'"):
                remedy = "Write it with double quotes, as json.dumps does."
            raise question(path, "file", problem, remedy) from None


def _one_object(path: str, whole: Mapping[str, Any]) -> Read:
    """Return the table in an object of columns, as written by pandas, or with a single list of objects."""
    lists = [key for key, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(lists) == 1:
        return as_table(path, whole[lists[0]], f"the array '{lists[0]}'")
    inner = {key for value in whole.values() if isinstance(value, Mapping) for key in value}
    if inner and len(whole) > len(inner) and all(isinstance(value, Mapping) for value in whole.values()):
        return as_table(path, whole.values(), "an object for each key")
    columns = list(map(_column, whole.values()))
    if columns and all(columns) and len(set(map(len, columns))) == 1:
        rows = zip(*columns, strict=True)
        return as_table(path, (dict(zip(whole, row, strict=True)) for row in rows), "a column each")
    keys = ", ".join(list(whole)[:6])
    remedy = "Write an array of objects, [{...}, {...}], or an object in each line."
    raise question(path, "file", f"is one JSON object with {keys}, none of which has the rows.", remedy)


def _column(value: object) -> list[Any]:
    if isinstance(value, Mapping):  # {"0": ..., "1": ...}
        return list(value.values())
    return value if isinstance(value, list) else []


def as_table(path: str, things: Iterable[Any], shape: str) -> Read:
    """Return the table of objects, with a column for each key that has texts, numbers or lists of these.

    Raises:
        ConfigError: one is no object, or none has such a value.
    """
    names: dict[str, None] = {}
    found: list[Mapping[str, Any]] = []
    for number, thing in enumerate(things, 1):
        if not isinstance(thing, Mapping):
            raise question(
                path, "file", f"item {number} is not an object, but {thing!r:.40}.", "Write {...} for each row."
            )
        names.update(dict.fromkeys(thing))
        found.append(thing)
    if not found:
        raise question(path, "file", "contains no objects.", "Is it the right one?")
    plain = [name for name in names if any(_cell(thing.get(name)) is not None for thing in found[:LOOKED_AT])]
    if not plain:
        problem = f"has no texts or labels in {', '.join(names)}, but objects or lists of objects within objects."
        raise question(path, "file", problem, "Write {text, label} for each row, e.g. with jq.")
    return plain, [[_cell(thing.get(name)) or "" for name in plain] for thing in found], shape


def _cell(value: object) -> str | None:
    if isinstance(value, list) and all(isinstance(each, str | int) for each in value):
        return LISTED.join(map(str, value))
    if isinstance(value, bytes):  # in parquet
        return value.decode("utf-8", "replace")
    return cell(value)
