"""The interface of storages, which local disks and object stores implement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True)
class Entry:
    """The facts of one file or folder.

    Attributes:
        path: with its scheme.
        folder: whether it is a folder.
        size: in bytes; None if unknown.
        modified: seconds since 1970; None if unknown.
        tag: changes whenever the content does, e.g. an ETag.
    """

    path: str
    folder: bool
    size: int | None
    modified: float | None
    tag: str


class Storage(Protocol):
    """The basic operations that everything else is built from. Paths are complete, with their scheme."""

    renames: bool
    """Whether files can be renamed atomically. Object stores cannot; there the last upload completes a set."""

    def entry(self, path: str) -> Entry | None:
        """Return the facts of the file or folder at `path`, or None if there is none."""
        ...

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a folder, one level, sorted by name. Raises FileNotFoundError."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file. Raises FileNotFoundError."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of `path` by `data` atomically, durable on return."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Like `put`, but raise FileExistsError if `path` exists. Exactly one of several callers succeeds."""
        ...

    def touch(self, path: str) -> None:
        """Set the modification time of the file at `path` to now; create it if missing."""
        ...

    def delete(self, path: str) -> None:
        """Remove one file, if it exists."""
        ...


def scheme_of(path: str) -> str:
    """Return the scheme of a path in lower case, e.g. `s3` for `s3://…`; '' for a local path or `file://…`."""
    found = _SCHEME.match(path)
    scheme = found.group(1).lower() if found else ""
    return "" if scheme in {"file", "local"} else scheme


def walk(storage: Storage, folder: str) -> Iterator[Entry]:
    """Yield every file below `folder`, depth first, sorted by name in each folder. Raises FileNotFoundError."""
    for entry in storage.children(folder):
        if entry.folder:
            yield from walk(storage, entry.path)
        else:
            yield entry
