"""Every file of the package is opened here: local or remote, by the same verbs.

`io` is the object everybody uses. A path is local unless it begins with a scheme such as `s3://`, `oss://`, `gs://`,
`http(s)://` or `memory://`. Text is UTF-8 everywhere. Folders above a file that is written are made by themselves, as
on an object store.
"""

from __future__ import annotations

import glob as _glob
import hashlib
import os
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from xdpx.utils.paths import StrPath
from xdpx.utils.places import Places
from xdpx.utils.storage import walk

BLOCK = 1 << 20


class FileAccess(Places):
    """Any path by the same verbs; `io` is its one shared object."""

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

        A remote file that is written goes up when it is closed, whole or not at all; leaving its `with` by an exception
        sends nothing. A large remote file that is read comes from the read cache.

        Raises:
            OSError: as the builtin does; a remote file that cannot be reached in time as well.
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
        """Open a file for reading bytes here and there: of a large remote one only what is read is fetched.

        Raises:
            OSError: as `open` does.
        """
        store, place = self.remote(path), self.plain(path)
        if store is None:
            return self.local_files.open(place, "rb")
        from xdpx.utils.remote_files import open_ranges

        return open_ranges(store, place, cache=self.cache)

    def local(self, path: StrPath) -> str:
        """Return a local file with the content of `path`: itself, or a copy in the read cache.

        Raises:
            FileNotFoundError: when there is none.
        """
        store, place = self.remote(path), self.plain(path)
        return self._entry(path).path if store is None else self.cache.fetch(store, place)

    def size(self, path: StrPath) -> int:
        """Return the bytes of a file, or of all files in a folder. Raises FileNotFoundError."""
        entry = self._entry(path)
        if entry.folder:
            return sum(found.size or 0 for found in walk(self.store(path), entry.path))
        return entry.size if entry.size is not None else os.path.getsize(self.local(path))

    def lines(self, path: StrPath) -> int:
        """Count the lines of a file; a last one without a line end counts."""
        count, last = 0, b"\n"
        for block in self._blocks(path):
            count, last = count + block.count(b"\n"), block
        return count + (not last.endswith(b"\n"))

    def md5(self, path: StrPath) -> str:
        """Return the MD5 of a file's content, 32 hex digits: to compare with others' lists, not to trust."""
        digest = hashlib.md5(usedforsecurity=False)
        for block in self._blocks(path):
            digest.update(block)
        return digest.hexdigest()

    def _blocks(self, path: StrPath) -> Iterator[bytes]:
        with self.open(path, "rb") as file:
            while block := file.read(BLOCK):
                yield block

    def last_modified(self, path: StrPath) -> float:
        """Return when a file was last modified, in seconds since 1970 (UTC). Raises OSError when nobody knows."""
        modified = self._entry(path).modified
        if modified is None:
            raise OSError(f"{path}: the server does not tell when this was last modified.")
        return modified

    def last_modified_str(self, path: StrPath) -> str:
        """Return when a file was last modified, as ISO 8601 with the local time zone."""
        return datetime.fromtimestamp(self.last_modified(path)).astimezone().isoformat(timespec="seconds")

    # ---- what is there

    def listdir(
        self, path: StrPath, recursive: bool = False, full_path: bool = False, contains: str | None = None
    ) -> list[str]:
        """List what is in a folder, sorted.

        Args:
            path: the folder.
            recursive: list the files below it instead, by their path within it.
            full_path: put the folder in front of each.
            contains: only what has this text in its name (in its path within, when recursive).

        Raises:
            FileNotFoundError: when there is no such folder.
            NotADirectoryError: when it is a file.
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
        """Tell whether a file could be written at `path` (or into it, when it is a folder): tried, not guessed."""
        from xdpx.utils.transfers import try_writing

        return try_writing(self, path)

    # ---- change what is there

    def copy(self, source: StrPath, target: StrPath) -> None:
        """Copy one file, whole or not at all; into `target` when that is a folder (or ends in a slash)."""
        from xdpx.utils.transfers import copy

        copy(self, source, target)

    def copytree(self, source: StrPath, target: StrPath) -> None:
        """Copy all files below a folder to below `target`, each whole or not at all, replacing those of equal name."""
        from xdpx.utils.transfers import copytree

        copytree(self, source, target)

    def move(self, source: StrPath, target: StrPath) -> None:
        """Move a file or folder; into `target` when that is a folder. Nothing is removed before its copy is whole."""
        from xdpx.utils.transfers import move

        move(self, source, target)

    def remove(self, path: StrPath) -> None:
        """Remove a file, or a folder with all below it. A link goes, not what it leads to."""
        from xdpx.utils.transfers import remove

        remove(self, path)

    def rmtree(self, path: StrPath) -> None:
        """Remove a folder with all below it. Raises NotADirectoryError when it is a file."""
        from xdpx.utils.transfers import rmtree

        rmtree(self, path)


io = FileAccess()
