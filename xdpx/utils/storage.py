"""What a place that keeps bytes must be able to do. Local disks and object stores both answer to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True)
class Entry:
    """One file or folder. `tag` changes whenever the content does; `size` (bytes) is None when the server hides it."""

    path: str
    folder: bool
    size: int | None
    modified: float | None
    tag: str


class Storage(Protocol):
    """The few verbs that everything above is made of. Paths are whole, with their scheme."""

    renames: bool
    """Whether a file can be renamed atomically. Object stores cannot: their last put decides instead."""

    def entry(self, path: str) -> Entry | None:
        """Describe what is at `path`, or None when nothing is."""
        ...

    def children(self, path: str) -> list[Entry]:
        """List a folder, one level, by name. Raises FileNotFoundError when there is none."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Make `data` the content of `path`, whole or not at all, durable on return."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Like `put`, but raise FileExistsError when something is there. Exactly one of several callers wins."""
        ...

    def touch(self, path: str) -> None:
        """Make the file at `path` (created when missing) carry the time of now."""
        ...

    def delete(self, path: str) -> None:
        """Remove one file; no error when it is gone already."""
        ...


def scheme_of(path: str) -> str:
    """Return `s3` for `s3://…`, in lower case; an empty text for a local path (also one written as `file://…`)."""
    found = _SCHEME.match(path)
    scheme = found.group(1).lower() if found else ""
    return "" if scheme in {"file", "local"} else scheme


def walk(storage: Storage, folder: str) -> Iterator[Entry]:
    """Yield every file below `folder`, in order of path. Raises FileNotFoundError when there is no such folder."""
    for entry in storage.children(folder):
        if entry.folder:
            yield from walk(storage, entry.path)
        else:
            yield entry
