"""The parsers `jsonl` and `json`: JSON objects, one per line or in one array, whose fields become columns."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, Rows, valid
from xdpx.loaders.parsers.encodings import TextParameters
from xdpx.loaders.parsers.files import BLOCK_BYTES, MAX_LINE_BYTES, open_text
from xdpx.loaders.parsers.lines import LineParser

ENDS_EARLY = "it ends too early"


class JSONLParser(LineParser):
    """Reads one JSON object per line. A file whose objects lack the last field, the label, is unlabelled."""

    class Parameters(LineParser.Parameters):
        """Keys of the jsonl parser."""

        fields: list[str] = param(doc="Names of the fields that become columns, in this order; the label comes last.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse an empty list of fields."""
            return [*super().conflicts(), *([] if self.fields else [("fields", "is empty. Name the fields to read.")])]

    def rows(self, lines: list[str], numbers: range | list[int], bad: list[BadLine]) -> Rows:
        """Return the fields of the object on each line. Blank lines are skipped."""
        rows: list[Row] = []
        kept: list[int] = []
        for number, line in zip(numbers, lines, strict=True):
            if not line.strip():
                continue
            row = _row_of_line(line, self.parameters.fields)
            if isinstance(row, str):
                bad.append(BadLine(number, row))
            else:
                rows.append(row)
                kept.append(number)
        return valid(Rows(rows, kept, sorted(bad)))

    def header(self, path: str) -> Row | None:
        """Return the fields."""
        del path
        return list(self.parameters.fields)

    def remedy(self, problem: str) -> str:
        """Return what to do about a row that cannot be used, for messages."""
        whole = ""
        if "is a list, not an object" in problem:
            whole = "Where the whole file is one array, use parser: json. Else: "
        elif ENDS_EARLY in problem:
            whole = "Where the whole file is one array, use parser: json; else one object per line: jq -c . FILE. Or: "
        return whole + super().remedy(problem)


class JSONParser(RowParser):
    """Reads one JSON array of objects, one object at a time, so that a large file needs little memory."""

    unit = "record"

    class Parameters(TextParameters):
        """Keys of the json parser."""

        fields: list[str] = param(doc="Names of the fields that become columns, in this order; the label comes last.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse an empty list of fields."""
            return [*super().conflicts(), *([] if self.fields else [("fields", "is empty. Name the fields to read.")])]

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the fields of each object."""
        with open_text(path, self.parameters.encoding) as stream:
            for number, thing in enumerate(_Array(stream, path), 1):
                row = row_of(thing, self.parameters.fields)
                yield number, BadLine(number, row) if isinstance(row, str) else row

    def header(self, path: str) -> Row | None:
        """Return the fields."""
        del path
        return list(self.parameters.fields)


def _row_of_line(line: str, fields: list[str]) -> Row | str:
    try:
        return row_of(json.loads(line), fields)
    except RecursionError:
        return "is nested too deeply"
    except ValueError as error:
        if not isinstance(error, json.JSONDecodeError):
            return f"is not JSON ({error})"
        early = f"; {ENDS_EARLY}" if error.pos >= len(line.rstrip()) else ""
        return f"is not JSON ({error.msg}{early})"


def row_of(thing: object, fields: list[str]) -> Row | str:
    """Return the fields of a JSON object, without those missing at the end; or a problem as text."""
    if not isinstance(thing, Mapping):
        return f"is {_kind(thing)}, not an object"
    row: Row = []
    for field in fields:
        if field not in thing:
            break
        text = cell(thing[field])
        if text is None:
            return f"field '{field}' is {_kind(thing[field])}, not text"
        row.append(text)
    missing = [field for field in fields[len(row) :] if field not in thing]
    near = _nearest_other(missing[0], tuple(thing), tuple(fields)) if missing else None
    if near is not None:
        return f"has no field '{missing[0]}', but '{near}': name that in fields, or rename it"
    if not row or len(row) + len(missing) < len(fields):
        return f"has no field '{missing[0]}', but {', '.join(map(repr, thing)) or 'none at all':.80}"
    return row


@lru_cache(maxsize=256)
def _nearest_other(field: str, there: tuple[str, ...], fields: tuple[str, ...]) -> str | None:
    """Return the field of an object with the name most similar to a missing one; None if none is similar."""
    return nearest(field, [name for name in there if name not in fields])


def cell(value: object) -> str | None:
    """Return a JSON value as text: texts, finite numbers, true and false. None for anything else, such as NaN."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    # pandas and json.dumps write missing values as NaN, which would become a class of its own, or the text "nan".
    return str(value) if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or infinite"
    return names.get(type(value), "a number")


class _Array(Iterator[Any]):
    """The elements of a JSON array in a stream, one at a time."""

    def __init__(self, stream: IO[bytes], path: str) -> None:
        self._stream = stream
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._position = 0
        self._count = 0
        self._closed = False
        if self._next_character() != "[":
            remedy = (
                "Use parser: jsonl when there is one object per line; jq .data FILE extracts an array from an object."
            )
            raise self._refuse("does not begin with '['", remedy)
        self._position += 1

    def __next__(self) -> Any:
        character = "" if self._closed else self._next_character()
        if character == "]":
            self._close()
        if self._closed:
            raise StopIteration
        if self._count and character != ",":
            raise self._refuse(f"record {self._count} is not followed by ',' or ']'", "Fix the file.")
        if self._count:
            self._position += 1
            self._next_character()
        self._count += 1
        return self._element()

    def _close(self) -> None:
        self._closed = True
        self._position += 1
        if self._next_character():
            raise self._refuse("continues after the closing ']'", "Put all records into one array.")

    def _element(self) -> Any:
        while True:
            try:
                thing, self._position = self._scan(self._text, self._position)
            except RecursionError as error:
                raise self._refuse(f"record {self._count} is nested too deeply", "Fix the file.") from error
            except ValueError as error:
                if len(self._text) > MAX_LINE_BYTES or not self._more():
                    raise self._refuse(f"record {self._count} is not JSON ({error})", "Fix the file.") from error
            else:
                return thing

    def _next_character(self) -> str:
        """Skip white space, and return the next character without consuming it; '' at the end."""
        while True:
            while self._position < len(self._text) and self._text[self._position] in " \t\r\n":
                self._position += 1
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more():
                return ""

    def _more(self) -> bool:
        # Read twice the pending length, so that a record of n blocks is scanned about log(n) times, not n times.
        size = max(BLOCK_BYTES, 2 * (len(self._text) - self._position))
        data = self._stream.read(size)
        try:
            text = self._decode(data, final=not data)
        except UnicodeDecodeError as error:
            remedy = "Name its encoding: encoding: gbk, cp1252, ...; or fix the file."
            raise self._refuse(f"is not UTF-8 text after record {self._count} ({error})", remedy) from error
        self._text = self._text[self._position :] + text
        self._position = 0
        return bool(data)

    def _refuse(self, problem: str, remedy: str) -> ConfigError:
        return ConfigError(self._path, [Fault("data_files", f"{problem}.", remedy)])
