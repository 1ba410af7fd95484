"""The disk of this machine: every low-level operation in one place, so that tests can count them or make them fail."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

from xdpx.utils.owners import temporary_name
from xdpx.utils.storage import Entry

NAMELESS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of writing, which Python tells without the name of the file."""
PRIVATE, PUBLIC = 0o600, 0o666
"""Mode of a new file that can hold secrets (values of a config, lines of a log), and of any other, less the umask."""
BLOCK = 1 << 20
"""Bytes read at a time: a log of a million rows is continued in the memory of one block."""
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})


class LocalFiles:
    """The disk of this machine. Each method is one operation of the operating system, or a few named ones in a row."""

    renames = True

    def open(self, path: str, mode: str = "rb", **text: Any) -> IO[Any]:
        """Open a local file; the only call of the builtin `open` in the package."""
        return open(path, mode, **text)

    def open_own(self, path: str, mode: str, *, private: bool, **text: Any) -> IO[Any]:
        """Open a file of ours for writing, and no link; a new one that is private is readable by this user alone."""

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), PRIVATE if private else PUBLIC)

        return self.open(path, mode, opener=opener, **text)

    def sync(self, file: IO[Any]) -> None:
        """Wait until what was written to `file` is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk; file systems that cannot are left alone."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Return a file another name at once, replacing what has it."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """Return a file a second name. Raises FileExistsError when the name is taken."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        """Remove a name of a file. Raises FileNotFoundError."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, where missing."""
        os.makedirs(path or ".", exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def entry(self, path: str) -> Entry | None:
        """Describe what is at `path`, links followed; None when nothing is."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        tag = f"{found.st_mtime_ns}-{found.st_ino}"
        return Entry(path, stat.S_ISDIR(found.st_mode), found.st_size, found.st_mtime, tag)

    def children(self, path: str) -> list[Entry]:
        """List a folder, one level, by name; what vanishes meanwhile is left out."""
        entries = (self.entry(os.path.join(path, name)) for name in sorted(os.listdir(path or ".")))
        return [entry for entry in entries if entry is not None]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file."""
        with self.open(path) as file:
            data: bytes = file.read()
        return data

    def write_whole(self, path: str, data: bytes) -> None:
        """Write a file and wait until it is on the disk; not atomic, so for temporary names only."""
        with self.open(path, "wb") as file:
            file.write(data)
            self.sync(file)

    def put(self, path: str, data: bytes) -> None:
        """Make `data` the content of `path`, whole or not at all, durable on return."""
        temporary = temporary_name(path)
        try:
            self.write_whole(temporary, data)
            self.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self.unlink(temporary)
            raise
        self.sync_folder(os.path.dirname(path) or ".")

    def create(self, path: str, data: bytes) -> None:
        """Put `data` at `path` unless something is there: then raise FileExistsError. One of several callers wins."""
        temporary = temporary_name(path)
        try:
            self.write_whole(temporary, data)
            self.link(temporary, path)
        finally:
            with suppress(OSError):
                self.unlink(temporary)
        self.sync_folder(os.path.dirname(path) or ".")

    def touch(self, path: str) -> None:
        """Make the file at `path` (created when missing) carry the time of now."""
        with self.open(path, "ab"):
            os.utime(path)

    def delete(self, path: str) -> None:
        """Remove one file; no error when it is gone already."""
        with suppress(FileNotFoundError):
            self.unlink(path)

    def usable_space(self, path: str) -> int:
        """Return how many bytes this user may still write where `path` is."""
        found = os.statvfs(path or ".")
        return found.f_bavail * found.f_frsize

    def copy_mode(self, source: str, target: str) -> None:
        """Let `target` be readable, writable and executable by whom `source` is."""
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))

    def make_private(self, path: str) -> None:
        """Let only this user read and write a file."""
        os.chmod(path, PRIVATE)

    def set_modified(self, path: str, seconds: float) -> None:
        """Set when a file was last modified (and read)."""
        os.utime(path, (seconds, seconds))

    def make_private_folder(self, path: str) -> None:
        """Make a folder that only this user may enter. Raises FileExistsError when something is there."""
        os.mkdir(path, 0o700)

    def lock(self, path: str) -> IO[Any]:
        """Wait until no other process holds the lock file at `path`, then hold it; closing the file lets go."""
        import fcntl

        file = self.open(path, "ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            file.close()
            raise
        return file


def lines_from_end(file: IO[bytes], beginning: int) -> Iterator[tuple[int, bytes]]:
    """Go through the lines of a file, the last one first, as (where it begins, the line with its end)."""
    end, tail = file.seek(0, 2), b""
    while end > beginning:
        start = max(beginning, end - BLOCK)
        file.seek(start)
        lines = (file.read(end - start) + tail).splitlines(keepends=True)
        tail = lines.pop(0) if start > beginning else b""
        place = start + len(tail) + sum(map(len, lines))
        for line in reversed(lines):
            place -= len(line)
            yield place, line
        end = start
