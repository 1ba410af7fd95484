"""Access to files in untrusted folders: which may be opened, and how much of them is read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache

from xdpx.utils import io
from xdpx.utils.redaction import redact
from xdpx.utils.storage import scheme_of

PIECE = 1 << 16
"""The most bytes of a text that are shown at a time."""


class NotShown(Exception):
    """A file is not shown; the message says why."""


def openable(path: str, root: str) -> str:
    """Return the path of a file below `root` that is safe to open. Remote paths are not checked.

    Raises:
        NotShown: it is not a regular file (a pipe would block forever), or a link that leads out of `root`.
    """
    if scheme_of(path):
        return path
    place = os.path.realpath(path)
    inside = _real(root)
    if not f"{place}/".startswith(f"{inside.rstrip('/')}/"):
        raise NotShown(f"{io.name(path)} is a link to a place outside of the folder of the board.")
    try:
        mode = os.stat(place).st_mode
    except OSError as error:
        raise NotShown(f"{io.name(path)} cannot be read ({error.strerror}).") from error
    if not stat.S_ISREG(mode):
        raise NotShown(f"{io.name(path)} is not a plain file.")
    return path


@lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


@dataclass(frozen=True)
class Piece:
    """A part of a text: the bytes from `start` to `end` of `size`."""

    text: str
    start: int
    end: int
    size: int


def read_piece(path: str, offset: int, most: int = PIECE) -> Piece:
    """Return complete lines of a text starting at a byte offset; a negative offset counts from the end.

    Invalid UTF-8 is shown as �, secrets as ***.

    Raises:
        NotShown: the file cannot be read.
    """
    try:
        with io.open_partly(path) as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            data = file.read(most)
    except OSError as error:
        raise NotShown(f"{io.name(path)} cannot be read ({error.strerror or error}).") from error
    if offset < 0 and start:
        cut = data.find(b"\n") + 1
        start, data = start + cut, data[cut:]
    if start + len(data) < size:
        data = data[: data.rfind(b"\n") + 1] or data
    return Piece(redact(data.decode("utf-8", "replace")), start, start + len(data), size)


def read_small(path: str, most: int = 8 << 20) -> str:
    """Return the whole text of a file; '' if it cannot be read or is larger than `most` bytes."""
    try:
        with io.open_partly(path) as file:
            data = file.read(most + 1)
    except OSError:
        return ""
    return data.decode("utf-8", "replace") if len(data) <= most else ""
