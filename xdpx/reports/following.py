"""What was added to a log since it was last read: a page that shows a training asks for it again and again."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, Self

from xdpx.reports.run_logs import BLOCK, Columns, RowParser, kept_rows, stacked, stretch_of, without_rewalked
from xdpx.utils import io

HEADER = b"epoch\tstep"
ALWAYS = ("epoch", "step")
"""Columns that are read whatever is asked for: rows are placed by them."""
LONGEST_LINE = 16 << 20
"""What goes on for so many bytes without a line end is no log; the rest of such a file is not read."""
_CHECKED = 256


@dataclass(frozen=True)
class Place:
    """How far a log was read.

    Attributes:
        offset: the bytes that were read, all of them whole lines.
        header: where the header begins that holds for the rows after them.
        mark: a checksum of this header and of the bytes before `offset`: they are others when the log was begun anew,
            cut back to an earlier step, or got a further column.
    """

    offset: int
    header: int
    mark: int

    def __str__(self) -> str:
        return f"{self.offset}-{self.header}-{self.mark:x}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the place that a text names, None when it names none."""
        found = re.fullmatch(r"(\d{1,18})-(\d{1,18})-([0-9a-f]{1,8})", text)
        return cls(int(found[1]), int(found[2]), int(found[3], 16)) if found else None


@dataclass(frozen=True)
class Added:
    """Rows of a log: those after a place, or with `anew` all of them, which replace what was read before."""

    columns: Columns
    place: Place
    anew: bool


def follow(path: str, names: Collection[str], place: Place | None = None) -> Added:
    """Read what stands in a log after `place`; all of it, a long one thinned, where that place is no more.

    A last line without its line end is still being written, so it is left for the next time.

    Args:
        path: of the log.
        names: of the columns that are wanted; epoch and step are read, too.
        place: up to which it was read before; None to read it from its beginning.

    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    wanted = {*ALWAYS, *names}
    with io.open_partly(path) as file:
        size = file.seek(0, os.SEEK_END)
        if place is not None and place.offset <= size and _mark(file, place.header, place.offset) == place.mark:
            columns, now = _rows_after(file, place, wanted, stretch=1)
            return Added(columns, now, anew=False)
        file.seek(0)
        stretch = stretch_of(file.read(BLOCK), size)
        columns, now = _rows_after(file, None, wanted, stretch=stretch)
        return Added(without_rewalked(columns), now, anew=True)


def _rows_after(file: IO[bytes], place: Place | None, names: Collection[str], *, stretch: int) -> tuple[Columns, Place]:
    parser, parts, rest = RowParser(names), list[Columns](), b""
    offset, header = (place.offset, place.header) if place else (0, 0)
    if place is not None:
        file.seek(header)
        list(parser.parse([_line(file)]))
    file.seek(offset)
    while block := file.read(BLOCK):
        whole, end, rest = (rest + block).rpartition(b"\n")
        if end:
            found = whole.rfind(b"\n" + HEADER) + 1
            header = offset + found if found or whole.startswith(HEADER) else header
            for part in parser.parse(whole.decode("utf-8", "replace").split("\n")):
                kept = kept_rows(part, stretch) if stretch > 1 and {*ALWAYS} <= set(part) else None
                parts.append(part if kept is None else {name: values[kept] for name, values in part.items()})
            offset += len(whole) + 1
        if len(rest) > LONGEST_LINE:
            break
    return stacked(parts), Place(offset, header, _mark(file, header, offset))


def _line(file: IO[bytes]) -> str:
    return file.readline(BLOCK).rstrip(b"\n").decode("utf-8", "replace")


def _mark(file: IO[bytes], header: int, offset: int) -> int:
    file.seek(header)
    checksum = zlib.crc32(file.readline(BLOCK))
    start = max(0, offset - _CHECKED)
    file.seek(start)
    return zlib.crc32(file.read(offset - start), checksum)


def ends_of(path: str, few: int = 1 << 12, most: int = 1 << 16) -> tuple[list[str], list[str]]:
    """Return the names of a log's columns and the cells of its last whole row; [] where there are none.

    Args:
        path: of the log, of which only the first and the last bytes are read.
        few: how many bytes of either end are looked at.
        most: how many, where a line is longer.
    """
    with io.open_partly(path) as file:
        size = file.seek(0, os.SEEK_END)
        found = _ends_of(file, size, few)
        return found if all(found) or size <= few else _ends_of(file, size, most)


def _ends_of(file: IO[bytes], size: int, most: int) -> tuple[list[str], list[str]]:
    file.seek(0)
    first = last = file.read(most)
    if size > most:
        file.seek(size - most)
        last = file.read(most)
    head, end, _ = first.partition(b"\n")
    if not end or not head.startswith(HEADER):
        return [], []
    _, begun, line = last.rpartition(b"\n")[0].rpartition(b"\n")  # without a line end before it, its begin is not seen
    names = head.decode("utf-8", "replace").split("\t")
    is_row = begun and not line.startswith(HEADER)
    return names, line.decode("utf-8", "replace").split("\t") if is_row else []
