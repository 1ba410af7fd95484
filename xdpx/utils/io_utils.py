"""`io`, the object through which all files of the package are opened, with the same methods for local and remote paths.

A path is local unless it begins with a scheme such as `s3://`, `oss://`, `gs://`, `http(s)://` or `memory://`. Text is
UTF-8 by default. Missing parent folders of a file that is written are created, as on an object store.
"""

from __future__ import annotations

import glob as _glob
import hashlib
import os
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from xdpx.utils.paths import StrPath
from xdpx.utils.places import Storages
from xdpx.utils.storage import walk

BLOCK = 1 << 20


class FileAccess(Storages):
    """File operations on local and remote paths; `io` is its shared instance."""

    # ---- one file

    def open(
        self,
        path: StrPath,
        mode: str = "r",
        encoding: str = "utf-8",
        *,
        newline: str | None = None,
        errors: str = "strict",
    ) -> IO[Any]:
        """Open a file, local or remote.

        A remote file that is written is uploaded atomically on close; if its `with` block ends by an exception, nothing
        is sent. A large remote file is read through the read cache.

        Raises:
            OSError: as the builtin `open`; also if a remote file cannot be reached in time.
        """
        store, place = self.remote(path), self.plain(path)
        text = {} if "b" in mode else {"encoding": encoding, "newline": newline, "errors": errors}
        if store is None:
            if mode[0] in "wax":
                self.local_files.make_folder(os.path.dirname(place))
            return self.local_files.open(place, mode, **text)
        from xdpx.utils.remote_files import open_remote

        return open_remote(store, place, mode, cache=self.cache, text=text)

    def open_partly(self, path: StrPath) -> IO[bytes]:
        """Open a file for random-access reading of bytes; of a large remote one only the ranges read are fetched.

        Raises:
            OSError: as `open` does.
        """
        store, place = self.remote(path), self.plain(path)
        if store is None:
            return self.local_files.open(place, "rb")
        from xdpx.utils.remote_files import open_ranges

        return open_ranges(store, place, cache=self.cache)

    def local(self, path: StrPath) -> str:
        """Return a local path with the content of `path`: itself, or a copy in the read cache.

        Raises:
            FileNotFoundError: `path` does not exist.
        """
        store, place = self.remote(path), self.plain(path)
        return self._entry(path).path if store is None else self.cache.fetch(store, place)

    def size(self, path: StrPath) -> int:
        """Return the size in bytes of a file, or of all files below a folder. Raises FileNotFoundError."""
        entry = self._entry(path)
        if entry.folder:
            return sum(found.size or 0 for found in walk(self.store(path), entry.path))
        return entry.size if entry.size is not None else os.path.getsize(self.local(path))

    def lines(self, path: StrPath) -> int:
        """Return the number of lines of a file, also a last one without a newline; .gz, .bz2 and .xz decompressed."""
        from xdpx.utils.compressed import decompressed

        count, last = 0, b"\n"
        with self.open(path, "rb") as file, decompressed(file, str(path)) as stream:
            for block in _blocks(stream):
                count, last = count + block.count(b"\n"), block
        return count + (not last.endswith(b"\n"))

    def md5(self, path: StrPath) -> str:
        """Return the MD5 of a file's content, 32 hex digits: for comparison with published lists, not for security."""
        digest = hashlib.md5(usedforsecurity=False)
        with self.open(path, "rb") as file:
            for block in _blocks(file):
                digest.update(block)
        return digest.hexdigest()

    def last_modified(self, path: StrPath) -> float:
        """Return when a file was last modified, in seconds since 1970 (UTC). Raises OSError if the server omits it."""
        modified = self._entry(path).modified
        if modified is None:
            raise OSError(f"{path}: the server does not say when this was last modified.")
        return modified

    def last_modified_str(self, path: StrPath) -> str:
        """Return when a file was last modified, as ISO 8601 with the local time zone."""
        return datetime.fromtimestamp(self.last_modified(path)).astimezone().isoformat(timespec="seconds")

    # ---- listing

    def listdir(
        self, path: StrPath, recursive: bool = False, full_path: bool = False, contains: str | None = None
    ) -> list[str]:
        """Return the sorted names of the files and folders in a folder.

        Args:
            path: the folder.
            recursive: return the files at any depth instead, by their path relative to the folder.
            full_path: prefix each with the folder.
            contains: keep only names (relative paths, if recursive) that contain this text.

        Raises:
            FileNotFoundError: there is no such folder.
            NotADirectoryError: it is a file.
        """
        store, place = self.store(path), self.plain(path)
        found = walk(store, place) if recursive else iter(store.children(place))
        prefix = self.join(place, "") if place else ""
        names = sorted(entry.path.removeprefix(prefix) for entry in found)
        kept = [name for name in names if contains is None or contains in name]
        return [prefix + name for name in kept] if full_path else kept

    def glob(self, pattern: StrPath) -> list[str]:
        """Return the paths that match `*`, `?`, `[ab]` and `**` (any number of folders), sorted."""
        store, place = self.remote(pattern), self.plain(pattern)
        return sorted(_glob.glob(place, recursive=True)) if store is None else store.glob(place)

    def is_writable(self, path: StrPath) -> bool:
        """Return whether a file can be written at `path` (or into it, if it is a folder), by writing one."""
        return not self.why_not_writable(path)

    def why_not_writable(self, path: StrPath) -> str:
        """Return why no file can be written at `path` (or into it, if it is a folder); '' if one can."""
        from xdpx.utils.transfers import try_writing

        return try_writing(self, path)

    # ---- changing

    def copy(self, source: StrPath, target: StrPath) -> None:
        """Copy one file atomically; into `target` if that is a folder (or ends in a slash)."""
        from xdpx.utils.transfers import copy

        copy(self, source, target)

    def copytree(self, source: StrPath, target: StrPath) -> None:
        """Copy all files below a folder to below `target`, each atomically, replacing files of the same name."""
        from xdpx.utils.transfers import copytree

        copytree(self, source, target)

    def move(self, source: StrPath, target: StrPath) -> None:
        """Move a file or folder; into `target` if that is a folder. Nothing is removed before its copy is complete."""
        from xdpx.utils.transfers import move

        move(self, source, target)

    def remove(self, path: StrPath) -> None:
        """Remove a file, or a folder with everything below it. Of a symlink, only the link is removed."""
        from xdpx.utils.transfers import remove

        remove(self, path)

    def rmtree(self, path: StrPath) -> None:
        """Remove a folder with everything below it. Raises NotADirectoryError for a file or a symlink."""
        from xdpx.utils.transfers import rmtree

        rmtree(self, path)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


io = FileAccess()
