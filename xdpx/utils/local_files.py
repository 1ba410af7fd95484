"""Local disk operations, each behind one method, so that tests can count them or make them fail."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from xdpx.utils.owners import temporary_name
from xdpx.utils.storage import Entry

NAMELESS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of writing that Python raises without the name of the file."""
PRIVATE, PUBLIC = 0o600, 0o666
"""Mode of a new file that may hold secrets (values of a config, lines of a log), and of any other, before the umask."""
BLOCK = 1 << 20
"""Bytes read at a time, so that finding the end of a log of a million rows takes the memory of one block."""
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})


class LocalFiles:
    """Storage on local disks. Each method is one system call, or a short sequence of them."""

    renames = True

    def open(self, path: str, mode: str = "rb", **text: Any) -> IO[Any]:
        """Open a local file. The only call of the builtin `open` in the package."""
        return open(path, mode, **text)

    def open_own(self, path: str, mode: str, *, private: bool, **text: Any) -> IO[Any]:
        """Open a file for writing, refusing a symlink (OSError); with `private`, a new one gets mode 0600."""

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), PRIVATE if private else PUBLIC)

        return self.open(path, mode, opener=opener, **text)

    def sync(self, file: IO[Any]) -> None:
        """Flush `file` and wait until its content is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, path: str) -> None:
        """Wait until the directory entries of a folder are on the disk; does nothing if the file system cannot."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing an existing file of the new name."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """Make a hard link. Raises FileExistsError if the new name exists."""
        os.link(old, new)

    def symlink(self, target: str, path: str) -> None:
        """Make a symlink to a file or a folder. Raises FileExistsError if `path` exists."""
        os.symlink(target, path)

    def unlink(self, path: str) -> None:
        """Remove a file or a symlink. Raises FileNotFoundError."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents, if missing."""
        os.makedirs(path or ".", exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def entry(self, path: str) -> Entry | None:
        """Return the facts of the file or folder at `path`, symlinks followed; None if there is none."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        tag = f"{found.st_mtime_ns}-{found.st_ino}"
        return Entry(path, stat.S_ISDIR(found.st_mode), found.st_size, found.st_mtime, tag)

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a folder, one level, sorted by name, without broken links and files just removed."""
        entries = (self.entry(os.path.join(path, name)) for name in sorted(os.listdir(path or ".")))
        return [entry for entry in entries if entry is not None]

    def broken_links(self, path: str) -> list[str]:
        """Return the names in a folder that are links to what is not there, sorted."""
        links = [name for name in sorted(os.listdir(path or ".")) if os.path.islink(os.path.join(path, name))]
        return [name for name in links if self.entry(os.path.join(path, name)) is None]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file."""
        with self.open(path) as file:
            data: bytes = file.read()
        return data

    def write_whole(self, path: str, data: bytes) -> None:
        """Write a file and wait until it is on the disk. Not atomic, so only for temporary names."""
        with self.open(path, "wb") as file:
            file.write(data)
            self.sync(file)

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of `path` by `data` atomically, durable on return."""
        with self.beside(path) as temporary:
            self.write_whole(temporary, data)

    @contextmanager
    def beside(self, path: str) -> Generator[str]:
        """Yield a temporary name to write to; it replaces `path`, durably, if the block ends without an exception."""
        temporary = temporary_name(path)
        try:
            yield temporary
            self.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self.unlink(temporary)
            raise
        self.sync_folder(os.path.dirname(path) or ".")

    def create(self, path: str, data: bytes) -> None:
        """Create `path` with `data` atomically; of several callers one wins, the others get FileExistsError."""
        temporary = temporary_name(path)
        try:
            self.write_whole(temporary, data)
            self.link(temporary, path)
        finally:
            with suppress(OSError):
                self.unlink(temporary)
        self.sync_folder(os.path.dirname(path) or ".")

    def touch(self, path: str) -> None:
        """Set the modification time of the file at `path` to now; create it if missing."""
        with self.open(path, "ab"):
            os.utime(path)

    def delete(self, path: str) -> None:
        """Remove one file, if it exists."""
        with suppress(FileNotFoundError):
            self.unlink(path)

    def usable_space(self, path: str) -> int:
        """Return the bytes that this user may still write on the file system of `path`."""
        found = os.statvfs(path or ".")
        return found.f_bavail * found.f_frsize

    def copy_mode(self, source: str, target: str) -> None:
        """Set the permissions of `target` to those of `source`."""
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))

    def make_private(self, path: str) -> None:
        """Set the mode of a file to 0600."""
        os.chmod(path, PRIVATE)

    def set_modified(self, path: str, seconds: float) -> None:
        """Set modification and access time of a file, in seconds since 1970."""
        os.utime(path, (seconds, seconds))

    def make_private_folder(self, path: str) -> None:
        """Create a folder with mode 0700. Raises FileExistsError."""
        os.mkdir(path, 0o700)

    def lock(self, path: str) -> IO[Any]:
        """Return the lock file at `path`, open and locked, waiting until it is free; closing it releases the lock."""
        import fcntl

        file = self.open(path, "ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            file.close()
            raise
        return file


def lines_from_end(file: IO[bytes], beginning: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file from the last to the first, as (byte offset, line with its newline).

    Args:
        file: open for reading bytes.
        beginning: byte offset to stop at.
    """
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
