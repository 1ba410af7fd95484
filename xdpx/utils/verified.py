"""Whether a file still has the bytes that its manifest promises: every byte is read once, and the outcome remembered.

What was found whole is noted in this user's own cache, never beside the file, so that no folder from elsewhere can say
of itself that it is sound. A note counts for one state of one file: its inode, size, and times of change. Losing a note
costs one more reading. Processes of one machine that open the same file wait for one of them to read it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Container, Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from xdpx.utils.commit import SUFFIX, FileFacts, read_manifest
from xdpx.utils.io_utils import io
from xdpx.utils.progress import format_bytes

RESOURCES = "resources"
"""Name of the committed set of what a model is built from: parameters, tokens, labels, architecture."""
NOTED_FROM = 1 << 20
"""Smaller files (bytes) are read each time."""
TOLD_FROM = 256 << 20
"""Of the reading of files from this size on a line is said."""
BLOCK = 128 << 10
SECONDS_AT_REST = 2.0
"""A file that was changed less than this long ago may change again within one tick of its clock: nothing is noted."""
_seen: set[tuple[str, _State, str]] = set()
_logger = logging.getLogger("xdpx.io")


class _State(NamedTuple):
    """What changes when a file does."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: str) -> _State:
        found = os.stat(path)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def is_at_rest(self) -> bool:
        return time.time() - max(self.modified, self.changed) / 1e9 > SECONDS_AT_REST


def trouble_of(path: str, name: str) -> str:
    """Return in what a file differs from what was committed; '' when in nothing, and where no manifest lists it.

    Args:
        path: any path; of a remote file the local copy is read, and fetched anew if that is damaged.
        name: of the set that it was committed in, whose manifest lies beside it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    manifest = read_manifest(io.parent(path), name)
    facts = manifest.files.get(io.name(path)) if manifest is not None else None
    if facts is None:
        return ""
    local = io.local(path)
    found = _trouble(local, facts, path)
    if found and not io.islocal(path):
        io.local_files.delete(local)
        found = _trouble(io.local(path), facts, path)
    return found


class Altered(OSError):
    """A file that decides what is computed does not hold what was written."""


def refuse_altered(folder: str, *, advice: str, but: Container[str] = ()) -> None:
    """Raise Altered when a file that a model is built from is there, but is not what was written; say all that are.

    Args:
        folder: of a run, or of preprocessed data; any path. One without a manifest is not looked at.
        advice: what to do.
        but: names of files that do not matter here.
    """
    found = [f"{path} {trouble}." for path, trouble in altered(folder).items() if io.name(path) not in but]
    if found:
        raise Altered(" ".join([*found, advice]))


def altered(folder: str) -> dict[str, str]:
    """Return path -> trouble for the files that a model is built from, are there, but are not what was written."""
    manifest = read_manifest(folder, RESOURCES) if io.isdir(folder) else None
    there = [path for file in (manifest.files if manifest else ()) if io.isfile(path := io.join(folder, file))]
    return {path: trouble for path in there if (trouble := trouble_of(path, RESOURCES))}


def has_damaged_manifest(path: str, name: str) -> bool:
    """Tell whether the manifest beside a file is there, but is not what was written."""
    folder = io.parent(path)
    return io.isfile(io.join(folder, name + SUFFIX)) and read_manifest(folder, name) is None


def _trouble(local: str, facts: FileFacts, path: str) -> str:
    state = _State.of(local)
    if state.size != facts.size:
        return f"has {state.size} bytes, its manifest says {facts.size}: it was cut short or changed"
    seen = (local, state, facts.sha256)
    if seen in _seen:
        return ""
    if state.size < NOTED_FROM:
        return _compared(local, facts)
    with _one_at_a_time(local) as note:
        if note and _is_noted(note, state, facts):
            _seen.add(seen)
            return ""
        if state.size >= TOLD_FROM:
            _logger.info("%s: its %s are compared with its manifest, this once", path, format_bytes(state.size))
        found = _compared(local, facts)
        if not found and state.is_at_rest and _State.of(local) == state:
            _seen.add(seen)
            if note:
                with suppress(OSError):
                    io.local_files.put(note, json.dumps([*state, facts.sha256]).encode())
    return found


def _compared(local: str, facts: FileFacts) -> str:
    digest, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with io.local_files.open(local, buffering=0) as file:
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(buffer[:count])
    same = digest.hexdigest() == facts.sha256
    return "" if same else "does not hold what was written (SHA-256 differs from its manifest)"


@contextmanager
def _one_at_a_time(local: str) -> Generator[str]:
    """Wait until no other process reads the same file; return the path of its note, '' where none can be kept."""
    files = io.local_files
    try:
        folder = os.path.join(io.cache.root, "checked")
        files.make_folder(folder)
        note = os.path.join(folder, f"{os.getuid()}-{_name_of(local)}")
        lock = files.lock(f"{note}.lock")
    except OSError:
        yield ""
        return
    with lock:
        yield note


def _name_of(local: str) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(local))).hexdigest()[:32]


def _is_noted(note: str, state: _State, facts: FileFacts) -> bool:
    """Tell whether a note of our own says that this very state of the file is whole."""
    try:
        with io.local_files.open(note) as file:
            own = os.fstat(file.fileno()).st_uid == os.getuid()
            return own and json.loads(file.read()) == [*state, facts.sha256]
    except (OSError, ValueError):
        return False
