"""SHA-256 of files, computed while they are written if possible, so that they need not be read again."""

from __future__ import annotations

import hashlib
import io as _io
import os
from collections.abc import Callable
from typing import IO, Any, cast

from xdpx.utils.io_utils import io
from xdpx.utils.manifests import FileFacts

BLOCK = 4 << 20


def hash_of(file: IO[bytes]) -> FileFacts:
    """Return the size and SHA-256 of an open file, read from its current position to the end."""
    digest, size = hashlib.sha256(), 0
    while block := file.read(BLOCK):
        digest.update(block)
        size += len(block)
    return FileFacts(size, digest.hexdigest())


class HashingWriter(_io.BufferedIOBase):
    """A local file, open for writing, that is synced to disk on close and reports its size and SHA-256.

    Bytes are hashed as they are written. Only if writes were not sequential, the file is read once more on close.

    Args:
        path: the local file.
        done: called on close with size and hash; not if the `with` block ends by an exception.
    """

    def __init__(self, path: str, done: Callable[[FileFacts], object]) -> None:
        super().__init__()
        self._path, self._done = path, done
        self._file = io.local_files.open(path, "wb")
        self._digest = hashlib.sha256()
        self._hashed = 0
        self._written_over = False

    def as_bytes(self) -> IO[Any]:
        """Return this, typed as an open file."""
        return cast(IO[Any], self)

    def as_text(self, newline: str | None) -> IO[Any]:
        """Return a UTF-8 text file over this."""
        return cast(IO[Any], _Text(cast(IO[bytes], self), encoding="utf-8", newline=newline))

    def writable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position."""
        return self._file.seek(offset, whence)

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        at = self._file.tell()
        view = memoryview(data).cast("B")
        self._file.write(view)
        if at == self._hashed:
            self._digest.update(view)
            self._hashed += len(view)
        else:
            self._written_over = True
        return len(view)

    def flush(self) -> None:
        """Write buffered bytes to the operating system."""
        if not self._file.closed:
            self._file.flush()

    def abandon(self) -> None:
        """Close without syncing and without calling `done`."""
        self._file.close()
        super().close()

    def close(self) -> None:
        """Sync to disk, close, and call `done`."""
        if self.closed:
            return
        try:
            io.local_files.sync(self._file)
            self._file.close()
            self._done(self._facts())
        finally:
            self.abandon()

    def _facts(self) -> FileFacts:
        if not self._written_over:
            return FileFacts(self._hashed, self._digest.hexdigest())
        with io.local_files.open(self._path) as file:
            return hash_of(file)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class _Text(_io.TextIOWrapper):
    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            cast(HashingWriter, self.buffer).abandon()
