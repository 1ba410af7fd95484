"""Rename damaged files that a run can do without, so that they are kept but no longer get in the way."""

from __future__ import annotations

import errno
import logging
import os

from xdpx.utils.io_utils import io
from xdpx.utils.paths import StrPath

MARK = ".damaged-"
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.EIO, errno.ENOTDIR})
"""Errors of the file itself, as opposed to those of a network that may recover."""
_logger = logging.getLogger("xdpx.io")


def original_name(name: str) -> str:
    """Return the name that a file had before it was set aside."""
    stem, mark, number = name.rpartition(MARK)
    return stem if mark and number.isdecimal() else name


def is_unreadable(path: StrPath) -> str:
    """Return why a file cannot be read, '' if it can. Raises OSError for causes outside of the file, e.g. a network."""
    if io.isdir(path):
        return "is a folder"
    try:
        with io.open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return reason_of(error)
    return ""


def reason_of(error: OSError) -> str:
    """Return the problem of a file that an error reports. Raises the error itself if it is not about the file."""
    if error.errno not in _UNREADABLE:
        raise error
    return f"cannot be read ({error.strerror})"


def set_aside(path: StrPath, trouble: str, *, then: str) -> str:
    """Rename a damaged file or folder that is not essential, and log a warning.

    Args:
        path: of an auxiliary file, in a folder that this process owns.
        trouble: what is wrong with it, e.g. "is a folder".
        then: what happens instead, as a clause for the warning.

    Returns:
        Its new path, `<path>.damaged-<number>`.

    Raises:
        OSError: it cannot be renamed.
    """
    place, number = io.plain(path), 1
    while os.path.lexists(f"{place}{MARK}{number}") or io.exists(f"{place}{MARK}{number}"):
        number += 1
    kept = f"{place}{MARK}{number}"
    try:
        if os.path.islink(place):
            io.local_files.rename(place, kept)
        else:
            io.move(place, kept)
    except OSError as error:
        advice = "Move or remove it by hand, and start the same command again."
        text = f"{place} {trouble}, and could not be set aside ({error.strerror}). {advice}"
        raise OSError(error.errno, text) from error
    _logger.warning("%s %s. It is kept as %s; %s.", place, trouble, io.name(kept), then)
    return kept


def clear_way(path: StrPath) -> None:
    """Set aside a folder at a path where a file is to be written."""
    if io.isdir(path):
        set_aside(path, "is a folder", then="a file is written in its place")


def text_of(path: StrPath) -> tuple[str, str]:
    """Return (text of an auxiliary file, ''), or ('', what is wrong with it). Raises FileNotFoundError.

    Other OSErrors are raised only if they are not about the file itself (see `reason_of`).
    """
    try:
        with io.open(path, encoding="utf-8") as file:
            text: str = file.read()
    except UnicodeDecodeError:
        return "", "holds bytes that are not text"
    except FileNotFoundError:
        raise
    except OSError as error:
        return "", reason_of(error)
    return ("", "holds bytes that are not text") if "\0" in text else (text, "")
