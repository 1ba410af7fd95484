"""Parts of a text file that begin and end with whole lines, so that several machines may read one each.

Part i of n holds the lines that begin behind i/n of the file and before (i+1)/n of it: every line is in exactly one
part, and to find the borders of a part two lines are read, not the file.
"""

from __future__ import annotations

import os
from typing import IO

from xdpx.loaders.parsers.base import Span
from xdpx.loaders.parsers.encodings import HEAD, as_utf8
from xdpx.loaders.parsers.files import open_raw, window


def span_of(path: str, index: int, count: int, *, skip_lines: int, encoding: str) -> Span | None:
    """Return part `index` of `count` of a file of lines; None where lines can only be found from the front.

    That is so for compressed text, and for text that is converted while it is read: another encoding than UTF-8, or
    carriage returns alone as line ends.

    Args:
        path: the file.
        index: from 0.
        count: how many parts there are.
        skip_lines: how many lines at the top are no rows; they are in the first part.
        encoding: of the file, where no byte order mark says another.
    """
    with open_raw(path, partly=True) as stream:
        if path.lower().endswith((".gz", ".bz2", ".xz")) or as_utf8(stream, path, encoding) is not stream:
            return None
        size = stream.seek(0, os.SEEK_END)
        begin = _behind_lines(stream, 0, skip_lines)
        start, end = (_border(stream, begin, size, each, count) for each in (index, index + 1))
        return Span(start, end)


def _border(stream: IO[bytes], begin: int, size: int, index: int, count: int) -> int:
    """Return where part `index` begins: at the first line that begins at its share of the file, or behind that."""
    place = begin + (size - begin) * index // count
    if index in {0, count} or not place:
        return size if index == count else 0
    return _behind_lines(stream, place - 1, 1)


def _behind_lines(stream: IO[bytes], place: int, lines: int) -> int:
    """Return the place behind so many line feeds from `place` on, or the end of the file."""
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
    """Count the lines of a span; a last one without a line end counts."""
    count, last = 0, b"\n"
    with open_raw(path, partly=True) as stream:
        part = window(stream, span)
        while block := part.read(1 << 20):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))
