"""Incremental reading of a log that grows: the page of a running training polls for the rows that were added."""

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
"""Columns that are always read, whichever are requested: they position the rows."""
LONGEST_LINE = 16 << 20
"""A file with this many bytes without a line end is not a log; the rest of it is not read."""
_CHECKED = 256


@dataclass(frozen=True)
class Place:
    """A position in a log, up to which it was read.

    Attributes:
        offset: number of bytes read, always whole lines.
        header: offset of the header that applies to the rows that follow.
        mark: checksum of this header and of the bytes just before `offset`. It changes if the log was restarted,
            truncated to an earlier step, or gained a column.
    """

    offset: int
    header: int
    mark: int

    def __str__(self) -> str:
        return f"{self.offset}-{self.header}-{self.mark:x}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the place that a text encodes; None if the text is not a valid place."""
        found = re.fullmatch(r"(\d{1,18})-(\d{1,18})-([0-9a-f]{1,8})", text)
        return cls(int(found[1]), int(found[2]), int(found[3], 16)) if found else None


@dataclass(frozen=True)
class Added:
    """Rows of a log: those after a place or, with `anew`, all rows, which replace those read before."""

    columns: Columns
    place: Place
    anew: bool


def follow(path: str, names: Collection[str], place: Place | None = None) -> Added:
    """Read the rows of a log after `place`; all rows (of a long log, a sample) if that place no longer exists.

    A last line without a line end is still being written, so it is left for the next read.

    Args:
        path: of the log.
        names: of the requested columns; epoch and step are always read as well.
        place: where the last read ended; None to read from the beginning.

    Raises:
        OSError: the file does not exist or cannot be read.
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
    """Return the column names of a log and the cells of its last complete row; [] for what is missing.

    Args:
        path: of the log, of which only the first and the last bytes are read.
        few: number of bytes to read at either end.
        most: number of bytes to read at either end if a line is longer than `few`.
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
    _, begun, line = last.rpartition(b"\n")[0].rpartition(b"\n")  # without a line end before it, the line may be cut
    names = head.decode("utf-8", "replace").split("\t")
    is_row = begun and not line.startswith(HEADER)
    return names, line.decode("utf-8", "replace").split("\t") if is_row else []
