"""Split a text file into parts of whole lines, so that several machines can read one each.

Part i of n contains the lines that begin at or after i/n of the file, and before (i+1)/n. So every line is in exactly
one part, and finding the borders of a part takes reading two lines, not the file.
"""

from __future__ import annotations

import os
from typing import IO

from xdpx.loaders.parsers.base import Span
from xdpx.loaders.parsers.encodings import HEAD, as_utf8
from xdpx.loaders.parsers.files import open_raw, window


def span_of(path: str, index: int, count: int, *, skip_lines: int, encoding: str) -> Span | None:
    """Return part `index` of `count` of a file of lines; None if it can only be read sequentially.

    This is the case for compressed text, and for text that is converted while it is read: another encoding than UTF-8,
    or carriage returns as line ends.

    Args:
        path: the file.
        index: from 0.
        count: number of parts.
        skip_lines: number of lines at the top that are not rows; they are in the first part.
        encoding: of the file; a byte order mark overrides it.
    """
    with open_raw(path, partly=True) as stream:
        if path.lower().endswith((".gz", ".bz2", ".xz")) or as_utf8(stream, path, encoding) is not stream:
            return None
        size = stream.seek(0, os.SEEK_END)
        begin = _behind_lines(stream, 0, skip_lines)
        start, end = (_border(stream, begin, size, each, count) for each in (index, index + 1))
        return Span(start, end)


def _border(stream: IO[bytes], begin: int, size: int, index: int, count: int) -> int:
    """Return the offset of part `index`: of the first line that begins at or after `index / count` of the rows."""
    place = begin + (size - begin) * index // count
    if index in {0, count} or not place:
        return size if index == count else 0
    return _behind_lines(stream, place - 1, 1)


def _behind_lines(stream: IO[bytes], place: int, lines: int) -> int:
    """Return the offset after the next `lines` line feeds from `place` on, or the end of the file."""
    stream.seek(place)
    while lines and (data := stream.read(HEAD)):
        found = data.count(b"\n")
        if found >= lines:
            position = -1
            for _ in range(lines):
                position = data.find(b"\n", position + 1)
            return place + position + 1
        lines -= found
        place += len(data)
    return place


def count_lines(path: str, span: Span) -> int:
    """Return the number of lines of a span, including a last one without a newline."""
    count, last = 0, b"\n"
    with open_raw(path, partly=True) as stream:
        part = window(stream, span)
        while block := part.read(1 << 20):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))
