"""The decoded text of one config file, with line numbers, and the parsing of numbers in it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right

from xdpx.config.faults import Fault, Origin

MAX_BYTES = 1_000_000
"""Maximum size of a config; a larger file is probably a data file given by mistake."""

MAX_DEPTH = 64
"""Maximum nesting of dicts and lists."""

MAX_DIGITS = 300
"""Maximum length of a number in characters; Python itself refuses integers of more than 4,300 digits."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Unreadable(Exception):
    """A file cannot be read any further; `fault` says why and where."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class SourceText:
    """A text with the name of its file and the offsets of its lines."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.file = file
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line(self, offset: int) -> int:
        """Return the line (from 1) of the character at `offset`."""
        return bisect_right(self._starts, offset)

    def place(self, offset: int) -> Origin:
        """Return file, line and column of the character at `offset`."""
        line = self.line(offset)
        return Origin(self.file, line, offset - self._starts[line - 1] + 1)

    def written(self, offset: int) -> Origin:
        """Return file and line of the value at `offset`, without the column."""
        return Origin(self.file, self.line(offset))


def decode(data: bytes, file: str) -> SourceText:
    """Return the bytes of a config decoded as UTF-8, with or without a byte order mark.

    Raises:
        Unreadable: the file is too large, empty, not UTF-8, or contains control characters.
    """
    if len(data) > MAX_BYTES:
        raise Unreadable(_whole_file(file, "is larger than 1 MB.", "Is this a config? Data files belong elsewhere."))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8."
        raise Unreadable(Fault("encoding", problem, "Save the file as UTF-8.", Origin(file, line))) from None
    source = SourceText(text, file)
    control = _CONTROL.search(source.text)
    if control:
        problem = f"holds the control character U+{ord(control[0]):04X}."
        raise Unreadable(
            Fault("encoding", problem, "Remove it, or write \\u00XX in quotes.", source.place(control.start()))
        )
    if not source.text.strip():
        raise Unreadable(_whole_file(file, "is empty.", "Write at least `{}`."))
    return source


def _whole_file(file: str, problem: str, remedy: str) -> Fault:
    return Fault("file", problem, remedy, Origin(file))


def excerpt(text: str, length: int = 40) -> str:
    """Return `text` quoted on one line, truncated to about `length` characters."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def short_path(path: str) -> str:
    """Return the dotted path of a value, shortened in the middle to fit on a line."""
    return path if len(path) <= 60 else f"{path[:30]}…{path[-20:]}"


def plain_thousands(text: str) -> str:
    """Return a number with commas between its thousands without them: 1000 for 1,000; '' for other texts."""
    return text.replace(",", "") if re.fullmatch(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+", text) else ""


def read_number(text: str) -> int | float:
    """Return a number: `1e3` is the integer 1000, as in hjson; `1.0` stays a float, since it may mean a fraction.

    Raises:
        ValueError: the number is too long, too large or too small.
    """
    if len(text) > MAX_DIGITS:
        raise ValueError(f"is a number of {len(text)} characters.")
    if not re.search("[.eE]", text):
        return int(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{excerpt(text)} is too large for a number.")
    if number == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError(f"{excerpt(text)} is too small for a number and would be read as 0.")
    is_count = "." not in text and number.is_integer() and abs(number) < 1e10
    return int(number) if is_count else number
