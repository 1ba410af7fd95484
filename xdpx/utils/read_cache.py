"""The read cache: local copies of remote files, validated against the remote file before each use, with LRU eviction.

A copy is `<root>/files/<hash of path>/<hash of version>/<file name>`, moved there by one rename, so existing copies are
complete. The version is size and tag of the remote file. Processes that need the same file wait for
a single download.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from xdpx.utils.local_files import LocalFiles
from xdpx.utils.owners import fate_of, owner_in, temporary_name
from xdpx.utils.progress import ProgressBar, format_bytes
from xdpx.utils.redaction import redact
from xdpx.utils.storage import Entry, walk

if TYPE_CHECKING:
    from xdpx.utils.remote_filesystems import RemoteFiles

DEFAULT_LIMIT = 20 << 30
SHOW_FROM = 1 << 20
"""Size in bytes from which downloads show a bar."""
DIGESTED = 4 << 20
"""Bytes of a file that are hashed at a time."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_logger = logging.getLogger("xdpx.io")


class ReadCache:
    """Local copies below `root`, at most `limit` bytes in total (a single larger file is still kept)."""

    def __init__(self, files: LocalFiles, root: str | None = None, limit: int | None = None) -> None:
        self.files = files
        self._root = root
        self.limit = limit if limit is not None else _limit()

    @property
    def root(self) -> str:
        """The folder of the cache: `$XDPX_CACHE_PATH`, or a private one in the system's temporary folder."""
        if self._root is None:
            chosen = os.environ.get("XDPX_CACHE_PATH")
            self._root = os.path.abspath(os.path.expanduser(chosen)) if chosen else private_folder(self.files)
            self.files.make_folder(self._root)
        return self._root

    def spool(self) -> str:
        """Return the folder for files waiting to be uploaded, after removing those of dead processes."""
        folder = os.path.join(self.root, "spool")
        self.files.make_folder(folder)
        self._live_files(folder)
        return folder

    def open(self, store: RemoteFiles, path: str) -> IO[bytes]:
        """Open the local copy of a remote file; it stays readable even if another process evicts it meanwhile."""
        for _ in range(3):
            with contextlib.suppress(FileNotFoundError):
                return self.files.open(self.fetch(store, path))
            if store.entry(path) is None:
                break
        return self.files.open(self.fetch(store, path))

    def fetch(self, store: RemoteFiles, path: str) -> str:
        """Return a local path with the current content of a remote file, downloading it if it is new or has changed.

        Raises:
            FileNotFoundError: the remote file does not exist (any more).
            IsADirectoryError: it is a folder.
            OSError: it cannot be downloaded in time, or changed during the download, twice.
        """
        entry = store.entry(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if entry.folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        copy = self._place(entry)
        if not self._is_whole(copy, entry):
            copy = self._download(store, entry)
        with contextlib.suppress(FileNotFoundError):
            self.files.set_modified(os.path.dirname(copy), time.time())
        return copy

    def _place(self, entry: Entry) -> str:
        version = _hash(f"{entry.size}|{entry.tag}")
        name = entry.path.rstrip("/").rpartition("/")[2].partition("?")[0][-120:] or "file"
        return os.path.join(self.root, "files", _hash(entry.path), version, name)

    def _is_whole(self, copy: str, entry: Entry) -> bool:
        kept = self.files.entry(copy)
        # Without a tag a file that was replaced by one of the same size cannot be told from the old one.
        return kept is not None and bool(entry.tag) and entry.size in {None, kept.size}

    def _download(self, store: RemoteFiles, entry: Entry) -> str:
        shelf = os.path.dirname(os.path.dirname(self._place(entry)))
        self.files.make_folder(shelf)
        with self.files.lock(f"{shelf}.lock"):
            before = ""
            for _ in range(2):
                copy = self._place(entry)
                if self._is_whole(copy, entry):
                    return copy  # another process was faster
                self._save(store, entry, copy)
                now = store.entry(entry.path)
                # Some web servers call a file modified just now, whenever they are asked: the bytes decide.
                if now is None or self._place(now) == copy or (digest := self._digest(copy)) == before:
                    self._forget_older(shelf, keep=os.path.dirname(copy))
                    self.evict(keep=copy)
                    return copy
                before, entry = digest, now
        raise OSError(f"{redact(entry.path)}: it kept changing while it was read. Try again when it no longer changes.")

    def _save(self, store: RemoteFiles, entry: Entry, copy: str) -> None:
        self.files.make_folder(os.path.dirname(copy))
        temporary = temporary_name(copy)
        try:
            with self.files.open(temporary, "wb") as file:
                download(store, entry, file)
            self.files.rename(temporary, copy)
        except BaseException:
            with contextlib.suppress(OSError):
                self.files.unlink(temporary)
            raise

    def _digest(self, copy: str) -> str:
        digest = hashlib.sha256()
        with self.files.open(copy) as file:
            while block := file.read(DIGESTED):
                digest.update(block)
        return digest.hexdigest()

    def _forget_older(self, shelf: str, *, keep: str) -> None:
        for version in self.files.children(shelf):
            if version.path != keep:
                self._drop(version.path)

    def _drop(self, version: str) -> None:
        with contextlib.suppress(OSError):
            for entry in self.files.children(version):
                self.files.delete(entry.path)
            self.files.remove_folder(version)

    def evict(self, *, keep: str = "") -> None:
        """Remove the least recently used copies, except `keep`, until the rest fits the limit."""
        used = 0
        for modified, size, version in sorted(self._versions(), reverse=True):
            used += size
            if used > self.limit and os.path.dirname(keep) != version:
                _logger.debug("the read cache is full: %s of %s go", format_bytes(size), version)
                self._drop(version)
                used -= size
            del modified

    def _versions(self) -> list[tuple[float, int, str]]:
        found = []
        top = os.path.join(self.root, "files")
        for shelf in self.files.children(top) if self.files.entry(top) else []:
            if not shelf.folder:
                continue
            for version in self.files.children(shelf.path):
                size = sum(file.size or 0 for file in self._live_files(version.path))
                found.append((version.modified or 0.0, size, version.path))
        return found

    def _live_files(self, folder: str) -> list[Entry]:
        """Remove temporary files of dead processes from a folder, and return its other files."""
        live = []
        for file in list(walk(self.files, folder)) if self.files.entry(folder) else []:
            owner = owner_in(file.path)
            if owner and fate_of(owner) == "gone":
                self.files.delete(file.path)
            else:
                live.append(file)
        return live


def download(store: RemoteFiles, entry: Entry, file: IO[bytes], *, show_from: int = SHOW_FROM) -> None:
    """Write the content of a remote file into a local one, with a bar if it has at least `show_from` bytes."""
    shown = entry.size is not None and entry.size >= show_from
    with ProgressBar[Any](total=entry.size, what=f"reading {redact(entry.path)}", unit="B", shown=shown) as bar:
        store.download(entry, file, bar.update)


def private_folder(files: LocalFiles) -> str:
    """Return a cache folder in the system's temporary folder that only this user can access, the same in every process.

    Its random name is kept in the user's home. A folder of that name with another owner or mode is never used; then,
    and without a writable home, it is a new folder for this process only.
    """
    note = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "xdpx" / "folder-name"
    top = tempfile.gettempdir()
    try:
        name = _drawn_name(files, str(note))
    except OSError:
        return tempfile.mkdtemp(prefix="xdpx-")  # no writable home to keep the name in
    folder = os.path.join(top, name)
    with contextlib.suppress(FileExistsError):
        files.make_private_folder(folder)
    found = os.lstat(folder)
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return folder if is_ours else tempfile.mkdtemp(prefix="xdpx-")


def _drawn_name(files: LocalFiles, note: str) -> str:
    with contextlib.suppress(FileExistsError):
        if files.entry(note) is None:
            files.make_folder(os.path.dirname(note))
            files.create(note, f"xdpx-{secrets.token_hex(16)}".encode())
    return files.read_bytes(note).decode().strip().replace("/", "")


def _limit() -> int:
    """Return `$XDPX_CACHE_LIMIT` in bytes; it is a number, optionally with K, M, G or T."""
    text = os.environ.get("XDPX_CACHE_LIMIT", "").strip().upper().removesuffix("IB").removesuffix("B")
    if not text:
        return DEFAULT_LIMIT
    number, unit = (text[:-1], text[-1]) if text[-1] in _UNITS else (text, "")
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        raise ValueError(f"XDPX_CACHE_LIMIT is '{text}'. Use bytes, or a number with K, M, G or T, e.g. 20G.") from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
