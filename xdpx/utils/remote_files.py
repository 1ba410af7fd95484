"""File objects for remote files: read in one request, through the cache, or in ranges; uploaded on close."""

from __future__ import annotations

import errno
import io
import os
import time
from typing import IO, TYPE_CHECKING, Any, cast

from xdpx.utils.owners import temporary_name

if TYPE_CHECKING:
    from xdpx.utils.read_cache import ReadCache
    from xdpx.utils.remote_filesystems import RemoteFiles

READ_AT_ONCE = 5 << 20
"""Remote files up to this size (bytes) are read in one request; larger ones go through the read cache."""
RANGE = 8 << 20
SECONDS_BETWEEN_FLUSHES = 30.0


class RangeReader(io.RawIOBase):
    """Reads a remote file in ranges, each retried separately: for files too large for the cache, or read in parts."""

    def __init__(self, store: RemoteFiles, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size = store, path, size
        self._at = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readall(self) -> bytes:
        """Return the rest of the file; the inherited method would request 8 KiB at a time."""
        blocks = []
        while self._at < self._size:
            count = min(RANGE, self._size - self._at)
            blocks.append(self._store.read_range(self._path, self._at, count))
            self._at += count
        return b"".join(blocks)

    def readinto(self, buffer: Any) -> int:
        """Read bytes into `buffer`, and return how many."""
        count = min(len(buffer), self._size - self._at)
        if count <= 0:
            return 0
        buffer[:count] = self._store.read_range(self._path, self._at, count)
        self._at += count
        return count


class RemoteWriter(io.BufferedIOBase):
    """Writes to a local temporary file and uploads it atomically on close.

    Args:
        store, path: of the remote file.
        cache: provides the folder for the temporary file.
        before: the current content, when appending.
        new: create the remote file, raising FileExistsError if it exists by then.
    """

    def __init__(
        self, store: RemoteFiles, path: str, *, cache: ReadCache, before: bytes = b"", new: bool = False
    ) -> None:
        super().__init__()
        self._store, self._path, self._new = store, path, new
        self._place = temporary_name(os.path.join(cache.spool(), "up"))
        self._files = cache.files
        self._file = self._files.open(self._place, "w+b")
        self._file.write(before)
        self._sent_at = time.monotonic()

    def writable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position."""
        return int(self._file.seek(offset, whence))

    def write(self, data: object) -> int:
        """Write bytes."""
        return int(self._file.write(data))

    def flush(self) -> None:
        """Upload the content so far, at most every 30 seconds, so that a log can be followed; not with `new`."""
        if not self._file.closed and not self._new and time.monotonic() - self._sent_at > SECONDS_BETWEEN_FLUSHES:
            self._send()

    def _send(self) -> None:
        self._file.flush()
        if self._new:
            self._file.seek(0)
            self._store.create(self._path, self._file.read())
        else:
            self._store.upload(self._place, self._path)
        self._sent_at = time.monotonic()

    def discard(self) -> None:
        """Close without uploading anything."""
        if not self.closed:
            self._file.close()
            self._files.delete(self._place)
            super().close()

    def close(self) -> None:
        """Upload the content."""
        if self.closed:
            return
        try:
            self._send()
        finally:
            self.discard()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _Text(io.TextIOWrapper):
    """Text layer over a RemoteWriter that uploads nothing if its `with` block ends by an exception."""

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            cast(RemoteWriter, self.buffer).discard()
        else:
            self.close()


def open_remote(store: RemoteFiles, path: str, mode: str, *, cache: ReadCache, text: dict[str, Any]) -> IO[Any]:
    """Open a remote file like the builtin `open`; `text` holds encoding, newline and errors, or is empty for bytes."""
    plain = mode.replace("b", "").replace("t", "")
    if plain == "r":
        raw = _reader(store, path, cache)
        return cast(IO[Any], io.TextIOWrapper(raw, **text) if text else raw)
    if plain not in {"w", "a", "x"}:
        raise ValueError(f"{path}: mode '{mode}' does not work on remote files. Use r, w, a or x, with b for bytes.")
    writer = _writer(store, path, plain, cache)
    return cast(IO[Any], _Text(cast(IO[bytes], writer), **text) if text else writer)


def open_ranges(store: RemoteFiles, path: str, *, cache: ReadCache) -> IO[bytes]:
    """Open a remote file for random-access reading: in ranges, unless it is small or its size is unknown."""
    return cast(IO[bytes], _reader(store, path, cache, in_ranges=True))


def _reader(store: RemoteFiles, path: str, cache: ReadCache, *, in_ranges: bool = False) -> Any:
    entry = store.entry(path)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if entry.folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if entry.size is not None and entry.size <= READ_AT_ONCE:
        return io.BytesIO(store.read_bytes(path))
    if entry.size is not None and (in_ranges or entry.size > cache.limit // 2):
        return io.BufferedReader(RangeReader(store, path, entry.size), RANGE)
    return cache.open(store, path)


def _writer(store: RemoteFiles, path: str, plain: str, cache: ReadCache) -> RemoteWriter:
    store.must_write(path)
    before = b""
    if plain == "a" and store.entry(path) is not None:
        before = store.read_bytes(path)
    if plain == "x" and store.entry(path) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    return RemoteWriter(store, path, cache=cache, before=before, new=plain == "x")
