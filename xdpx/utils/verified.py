"""Compare files with the hashes in their manifest; each version of a file is read once, and a success remembered.

Files found intact are noted in this user's own cache, never beside the file, so that a folder from elsewhere cannot
claim to be intact. A note is valid for one version of a file: its inode, size, and modification and change times. A
lost note only means that the file is read again. Processes of one machine that open the same file wait for one of them
to read it.
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
"""Name of the committed set of files that a model is built from: parameters, tokens, labels, architecture."""
NOTED_FROM = 1 << 20
"""Size in bytes from which results are noted; smaller files are read again by every process."""
TOLD_FROM = 256 << 20
"""Size in bytes from which the comparison is logged."""
BLOCK = 128 << 10
SECONDS_AT_REST = 2.0
"""Age of the last change below which nothing is noted: the next change could get the same timestamp."""
_seen: set[tuple[str, _State, str]] = set()
_logger = logging.getLogger("xdpx.io")


class _State(NamedTuple):
    """Facts of a file that change whenever its content does; times in nanoseconds."""

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
    """Return how a file differs from its committed version; '' if it does not, or if no manifest lists it.

    Args:
        path: any path; of a remote file the local copy is read, and downloaded again if that is damaged.
        name: of the set that it was committed in, whose manifest is in the same folder.

    Raises:
        FileNotFoundError: a manifest lists the file, but it does not exist.
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
    """A file that a model is built from differs from its committed version."""


def refuse_altered(folder: str, *, advice: str, but: Container[str] = ()) -> None:
    """Raise Altered, with the list of files, if existing files that a model is built from differ from their manifest.

    Args:
        folder: of a run, or of preprocessed data; any path. A folder without a manifest passes.
        advice: sentence that says what to do.
        but: names of files to ignore.
    """
    found = [f"{path} {trouble}." for path, trouble in altered(folder).items() if io.name(path) not in but]
    if found:
        raise Altered(" ".join([*found, advice]))


def altered(folder: str) -> dict[str, str]:
    """Return path -> difference for existing files that a model is built from and that differ from their manifest."""
    manifest = read_manifest(folder, RESOURCES) if io.isdir(folder) else None
    there = [path for file in (manifest.files if manifest else ()) if io.isfile(path := io.join(folder, file))]
    return {path: trouble for path in there if (trouble := trouble_of(path, RESOURCES))}


def has_damaged_manifest(path: str, name: str) -> bool:
    """Return whether the manifest of a set exists in the folder of `path`, but is damaged."""
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
            _logger.info("%s: its %s are being compared with its manifest, once", path, format_bytes(state.size))
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
    return "" if same else "differs from what was written (SHA-256 differs from its manifest)"


@contextmanager
def _one_at_a_time(local: str) -> Generator[str]:
    """Hold a lock on reading a file; yield the path of its note, '' if the cache is not writable."""
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
    """Return whether a note written by this user says that this version of the file is intact."""
    try:
        with io.local_files.open(note) as file:
            own = os.fstat(file.fileno()).st_uid == os.getuid()
            return own and json.loads(file.read()) == [*state, facts.sha256]
    except (OSError, ValueError):
        return False
