"""Atomic writes of one file: write a temporary file, then rename it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import IO, Any

from xdpx.utils.io_utils import io
from xdpx.utils.local_files import NAMELESS
from xdpx.utils.paths import StrPath


@contextlib.contextmanager
def replacing(
    path: StrPath, mode: str = "w", *, newline: str | None = None, own: bool = False, private: bool = False
) -> Generator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends without an exception.

    Args:
        path: any path. A symlink is kept, and its target replaced, unless `own`.
        mode: `w` for UTF-8 text, `wb` for bytes.
        newline: as for the builtin `open`.
        own: replace a symlink instead of following it: for our files in a folder that may come from elsewhere.
        private: give a local file mode 0600.
    """
    place = io.plain(path)
    with _named(path):
        if not io.islocal(place) or is_device(place):
            with io.open(place, mode, newline=newline) as file:
                yield file
        else:
            with _beside(place if own else os.path.realpath(place), mode, newline, private=private) as file:
                yield file


@contextlib.contextmanager
def _beside(place: str, mode: str, newline: str | None, *, private: bool) -> Generator[IO[Any]]:
    files = io.local_files
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": newline}
    files.make_folder(os.path.dirname(place))
    with files.beside(place) as temporary:
        with files.open_own(temporary, mode, private=private, **text) as file:
            yield file
            files.sync(file)
        if files.entry(place) is not None and not private and not os.path.islink(place):
            files.copy_mode(place, temporary)


@contextlib.contextmanager
def alone(path: StrPath) -> Generator[None]:
    """Let only one process at a time read and replace a local file in the block; the others wait.

    A file that does not exist is created, empty. Nothing is locked on remote storage, and where locks do not work.
    """
    place = io.plain(path)
    if not io.islocal(place) or is_device(place):
        yield
        return
    io.local_files.make_folder(os.path.dirname(place))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(_lock_of(os.path.realpath(place)))
        yield


def _lock_of(place: str) -> IO[Any]:
    """Return the file, locked, that is at this place now: another process may have replaced it during the wait."""
    while True:
        file = io.local_files.lock(place)
        if os.path.exists(place) and os.path.samestat(os.fstat(file.fileno()), os.stat(place)):
            return file
        file.close()


def adding(path: StrPath) -> IO[Any]:
    """Open a log file for appending text. A new one gets mode 0600; a symlink is replaced instead of followed."""
    place = io.plain(path)
    if not io.islocal(place) or is_device(place):
        return io.open(place, "a")
    io.local_files.make_folder(os.path.dirname(place))
    if os.path.islink(place):
        io.local_files.unlink(place)
    return io.local_files.open_own(place, "a", private=True, encoding="utf-8")


@contextlib.contextmanager
def _named(path: StrPath) -> Generator[None]:
    """Add the file name to write errors that lack it, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in NAMELESS and error.filename is None:
            error.filename = os.fspath(path)
        raise


def write_text(path: StrPath, text: str, *, own: bool = True, private: bool = False) -> None:
    """Write `text` (UTF-8) to a file atomically; arguments as for `replacing`."""
    with replacing(path, own=own, private=private) as file:
        file.write(text)


def write_bytes(path: StrPath, data: bytes, *, own: bool = True) -> None:
    """Write `data` to a file atomically; arguments as for `replacing`."""
    with replacing(path, "wb", own=own) as file:
        file.write(data)


def is_device(place: str) -> bool:
    """Return whether a local path is a pipe, a terminal or another device."""
    return os.path.exists(place) and not os.path.isfile(place) and not os.path.isdir(place)
