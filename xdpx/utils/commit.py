"""Atomic writes: every file that a user would miss is written through this module.

One file: `replacing` writes a temporary file and renames it. Several that belong together: `Commit`. Its files are
first written completely under temporary names; then `<name>.manifest.json.next`, the promise, is created atomically,
and from then on the new files count: if the writer dies, the next process that looks finishes the renames. On an object
store, which cannot rename, a first commit uploads its manifest last, and a repeated one stages its files under
temporary names and uses the same promise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any, Self

from xdpx.utils.hashing import HashingWriter, hash_of
from xdpx.utils.io_utils import io
from xdpx.utils.leases import Lease, LeaseHeld, LeaseLost
from xdpx.utils.manifests import DamagedManifest, FileFacts, Manifest, leads_out
from xdpx.utils.owners import fate_of, new_owner_id, owner_in, pid_of, temporary_name
from xdpx.utils.paths import StrPath
from xdpx.utils.progress import format_bytes
from xdpx.utils.replacing import replacing, write_bytes, write_text
from xdpx.utils.storage import walk

if TYPE_CHECKING:
    from xdpx.utils.remote_filesystems import RemoteFiles

__all__ = [
    "Commit", "FileFacts", "Lease", "LeaseHeld", "LeaseLost", "Manifest", "discard", "manifests", "problems",
    "read_manifest", "replacing", "seal", "sweep", "sweep_beside", "sweep_top", "write_bytes", "write_text",
]  # fmt: skip

SUFFIX = ".manifest.json"
PROMISE = ".manifest.json.next"
SECONDS_TO_WAIT_FOR_WRITER = 10.0
SECONDS_UNTIL_DEAD = 24 * 3600.0
"""Age (seconds since the last change) from which temporary files of a process on another machine are removed."""
_publishing: set[str] = set()


# ---- several files


class Commit:
    """A context manager that writes a set of files which become visible together; after an exception, nothing changes.

    Args:
        folder: of the files, any path; created if missing.
        name: of the set; `<name>.manifest.json` beside the files marks them as complete.
        facts: further content of the manifest, JSON-serialisable.
        needs_bytes: total size, if known; entering raises OSError if a local disk has less than 1.1 times this free.
    """

    def __init__(
        self, folder: StrPath, name: str, *, facts: Mapping[str, Any] | None = None, needs_bytes: int = 0
    ) -> None:
        if not name or "/" in name:
            raise ValueError(f"'{name}' is not a name for a commit: it must be one part of a path.")
        self.folder, self.name = io.plain(folder), name
        self.facts = facts or {}
        self.id = new_owner_id()
        self._needs_bytes = needs_bytes
        self._files: dict[str, FileFacts] = {}
        self._staged: dict[str, str] = {}

    def __enter__(self) -> Self:
        if io.islocal(self.folder):
            io.local_files.make_folder(self.folder)
            room = io.local_files.usable_space(self.folder)
            if room < 1.1 * self._needs_bytes:
                text = f"Needs {format_bytes(1.1 * self._needs_bytes)}, but only {format_bytes(room)} are free"
                raise OSError(errno.ENOSPC, text, self.folder)
        finish_promise(self.folder, self.name)
        return self

    def open(self, file_name: str, mode: str = "wb", *, newline: str | None = None, private: bool = False) -> IO[Any]:
        """Open one of the files for writing (`wb`, or `w` for UTF-8 text); close it before the block ends.

        With `private`, a local file gets mode 0600.
        """
        if mode not in {"w", "wb"}:
            raise ValueError(f"{file_name}: mode '{mode}' makes no sense for a new file. Use w or wb.")
        staged = self._stage(file_name)
        writer = HashingWriter(staged, lambda facts: self._files.__setitem__(file_name, facts))
        if private:
            io.local_files.make_private(staged)
        return writer.as_text(newline) if mode == "w" else writer.as_bytes()

    def adopt(self, file_name: str, local_path: StrPath) -> None:
        """Move a local file into the set, as `file_name`."""
        files, staged, source = io.local_files, self._stage(file_name), io.plain(local_path)
        with files.open(source, "rb") as file:
            self._files[file_name] = hash_of(file)
            os.fsync(file.fileno())
        io.move(source, staged)

    def _stage(self, file_name: str) -> str:
        if file_name in self._staged or leads_out(file_name):
            raise ValueError(f"{self.name}: '{file_name}' is in it already, or leads out of its folder.")
        staged = temporary_name(io.join(self.folder, file_name), self.id)
        if not io.islocal(self.folder):
            staged = temporary_name(io.join(io.cache.spool(), f"{len(self._staged)}"), self.id)
        io.local_files.make_folder(os.path.dirname(staged))
        self._staged[file_name] = staged
        return staged

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            self._remove_temporaries()

    def _publish(self) -> None:
        unfinished = sorted(set(self._staged) - set(self._files))
        if unfinished:
            raise ValueError(f"{self.name}: {unfinished[0]} was not closed before its commit ended.")
        manifest = Manifest(self.name, self._files, self.facts, self.id)
        data = manifest.to_bytes()
        before = _look(self.folder, self.name)
        _publishing.add(self.id)
        try:
            if io.islocal(self.folder):
                self._publish_here(data)
            else:
                self._publish_there(data, repeated=not isinstance(before, str) or before != _ABSENT)
        finally:
            _publishing.discard(self.id)
        for retired in set(getattr(before, "files", ())) - set(self._files):
            with contextlib.suppress(OSError):  # the new set is complete; a leftover file does no harm
                io.store(self.folder).delete(io.join(self.folder, retired))

    def _publish_here(self, data: bytes) -> None:
        # The promise must not reach the disk before the directory entries of the files that it lists.
        for folder in sorted({os.path.dirname(staged) for staged in self._staged.values()}):
            io.local_files.sync_folder(folder or ".")
        io.local_files.put(_promise(self.folder, self.name), data)
        _carry_out_here(self.folder, self.name, self._files, self.id)

    def _publish_there(self, data: bytes, *, repeated: bool) -> None:
        store = _remote(self.folder)
        for file_name, staged in self._staged.items():
            target = io.join(self.folder, file_name)
            store.upload(staged, temporary_name(target, self.id) if repeated else target)
        if repeated:
            store.put(_promise(self.folder, self.name), data)
            _carry_out_there(self.folder, self.name, data)
        else:
            store.put(_manifest(self.folder, self.name), data)

    def _remove_temporaries(self) -> None:
        if io.exists(_promise(self.folder, self.name)) and io.islocal(self.folder):
            return  # promised: the next process needs them to finish the commit
        for staged in self._staged.values():
            with contextlib.suppress(OSError):
                io.local_files.unlink(staged)


def _remote(folder: str) -> RemoteFiles:
    store = io.remote(folder)
    if store is None:
        raise ValueError(f"{folder} is a local folder: this is a bug.")
    return store


def _manifest(folder: str, name: str) -> str:
    return io.join(folder, name + SUFFIX)


def _promise(folder: str, name: str) -> str:
    return io.join(folder, name + PROMISE)


def seal(folder: StrPath, name: str, file_names: Iterable[str]) -> None:
    """Write the manifest for files that already exist, unless the current manifest lists exactly these."""
    place = io.plain(folder)
    found: dict[str, FileFacts] = {}
    for file_name in file_names:
        with io.open(io.join(place, file_name), "rb") as file:
            found[file_name] = hash_of(file)
    before = read_manifest(place, name)
    if before is None or before.files != found:
        manifest = Manifest(name, found, {}, new_owner_id())
        (io.remote(place) or io.local_files).put(_manifest(place, name), manifest.to_bytes())


# ---- promises


def finish_promise(folder: StrPath, name: str) -> None:
    """Finish the commit of a dead writer. If the writer lives, wait up to `SECONDS_TO_WAIT_FOR_WRITER` for it first.

    Does nothing without a promise; deletes a damaged one.
    """
    place = io.plain(folder)
    data = _read(_promise(place, name))
    if data is None:
        return
    try:
        manifest = Manifest.from_bytes(data)
    except DamagedManifest:
        io.store(place).delete(_promise(place, name))
        return
    if _is_at_work(manifest.id) and _waited_for(_promise(place, name)):
        return
    if io.islocal(place):
        _carry_out_here(place, name, manifest.files, manifest.id)
    else:
        _carry_out_there(place, name, data)


def _is_at_work(owner: str) -> bool:
    fate = fate_of(owner)
    ours = fate == "alive" and pid_of(owner) == os.getpid()
    return owner in _publishing if ours else fate == "alive"


def _waited_for(promise: str) -> bool:
    end = time.monotonic() + SECONDS_TO_WAIT_FOR_WRITER
    while time.monotonic() < end:
        if not io.exists(promise):
            return True
        time.sleep(0.02)
    return False


def _carry_out_here(folder: str, name: str, files: Mapping[str, FileFacts], owner: str) -> None:
    # Idempotent, and safe for two processes at once: each does the steps that it finds undone.
    for file_name in sorted(files):
        target = io.join(folder, file_name)
        with contextlib.suppress(FileNotFoundError):
            io.local_files.rename(temporary_name(target, owner), target)
    for parent in sorted({os.path.dirname(io.join(folder, file_name)) for file_name in files}):
        io.local_files.sync_folder(parent or ".")
    with contextlib.suppress(FileNotFoundError):
        io.local_files.rename(_promise(folder, name), _manifest(folder, name))
    io.local_files.sync_folder(folder or ".")


def _carry_out_there(folder: str, name: str, data: bytes) -> None:
    store, manifest = _remote(folder), Manifest.from_bytes(data)
    targets = [io.join(folder, file_name) for file_name in sorted(manifest.files)]
    try:
        for target in targets:
            store.copy_within(temporary_name(target, manifest.id), target)
    except FileNotFoundError:
        if store.entry(_promise(folder, name)) is None:
            return  # another process has finished it meanwhile
        raise
    store.put(_manifest(folder, name), data)
    store.delete(_promise(folder, name))
    for target in targets:
        store.delete(temporary_name(target, manifest.id))


# ---- reading manifests

_ABSENT = "there is no manifest"


def _read(path: str) -> bytes | None:
    try:
        return io.store(path).read_bytes(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return b""  # not a manifest: counts as damaged


def _load(folder: StrPath, name: str) -> Manifest | str:
    """Return the manifest, or what is wrong with it. A pending promise is finished first, if permissions allow."""
    place = io.plain(folder)
    with contextlib.suppress(PermissionError):
        finish_promise(place, name)
    return _look(place, name)


def _look(place: str, name: str) -> Manifest | str:
    data = _read(_manifest(place, name))
    if data is None:
        return _ABSENT
    try:
        manifest = Manifest.from_bytes(data)
    except DamagedManifest as error:
        return f"its manifest is damaged: {error}"
    return manifest if manifest.name == name else f"its manifest is that of '{manifest.name}'"


def read_manifest(folder: StrPath, name: str) -> Manifest | None:
    """Return the manifest of a committed set, or None if it is missing or damaged."""
    found = _load(folder, name)
    return None if isinstance(found, str) else found


def manifests(folder: StrPath) -> list[str]:
    """Return the sorted names of the sets that have a manifest or a promise in a folder; empty without the folder."""
    try:
        names = io.listdir(folder, contains=SUFFIX)
    except FileNotFoundError:
        return []
    found = {name.removesuffix(suffix) for name in names for suffix in (SUFFIX, PROMISE) if name.endswith(suffix)}
    return sorted(found)


def problems(folder: StrPath, name: str, *, hashes: bool, largest: int | None = None) -> list[str]:
    """Return what is wrong with a committed set; an empty list means that it is valid.

    Args:
        folder: of the set.
        name: of the set.
        hashes: also compare SHA-256, which reads every byte; else only presence and sizes.
        largest: size in bytes up to which hashes are compared; None: of all files.

    Returns:
        One sentence per problem, each naming the file.
    """
    return [f"{what}: {trouble}." for what, trouble in troubles(folder, name, hashes=hashes, largest=largest).items()]


def troubles(folder: StrPath, name: str, *, hashes: bool, largest: int | None = None) -> dict[str, str]:
    """Return what `problems` tells, by file name; by the name of the set if its manifest is missing or damaged."""
    manifest = _load(folder, name)
    if isinstance(manifest, str):
        return {name: manifest}
    place = io.plain(folder)
    found = {
        each: _trouble(io.join(place, each), facts, hashes and (largest is None or facts.size <= largest))
        for each, facts in manifest.files.items()
    }
    return {each: trouble for each, trouble in found.items() if trouble}


MISSING = "it is missing"


def _trouble(path: str, facts: FileFacts, hashes: bool) -> str:
    entry = io.store(path).entry(path)
    if entry is None or entry.folder:
        return MISSING
    if entry.size != facts.size:
        return f"it has {entry.size} bytes instead of {facts.size}"
    if hashes:
        with io.open(path, "rb") as file:
            if hash_of(file) != facts:
                return "its content is not what was written (SHA-256 differs)"
    return ""


# ---- clearing up


def discard(folder: StrPath, name: str) -> None:
    """Remove a committed set: its manifest first, then its files, so that it never looks complete in between."""
    place, store = io.plain(folder), io.store(folder)
    found = _load(place, name)
    store.delete(_promise(place, name))
    store.delete(_manifest(place, name))
    if io.islocal(place):
        io.local_files.sync_folder(place or ".")
    for file_name in getattr(found, "files", ()):
        store.delete(io.join(place, file_name))


def sweep(folder: StrPath) -> list[str]:
    """Remove temporary files of dead writers below a folder, and finish commits that dead writers had promised.

    Returns:
        The paths that were removed.
    """
    place, store = io.plain(folder), io.store(folder)
    if not io.isdir(place):
        return []
    for name in manifests(place):
        finish_promise(place, name)
    dead = [entry.path for entry in walk(store, place) if _is_dead(entry.path, entry.modified)]
    for path in dead:
        store.delete(path)
    return dead


def sweep_beside(path: StrPath) -> None:
    """Remove temporary files that dead writers of one local file left beside it; files of other names are kept."""
    place = io.plain(path)
    _sweep_children(io.parent(place), f"{io.name(place)}.tmp-")


def sweep_top(folder: StrPath) -> None:
    """Remove temporary files that dead writers left in a local folder, not in its subfolders."""
    _sweep_children(io.plain(folder), "")


def _sweep_children(folder: str, beginning: str) -> None:
    if io.islocal(folder) and io.isdir(folder or "."):
        for entry in io.store(folder).children(folder):
            if io.name(entry.path).startswith(beginning) and not entry.folder and _is_dead(entry.path, entry.modified):
                with contextlib.suppress(OSError):  # another user's folder, or another process is sweeping it
                    io.local_files.delete(entry.path)


def _is_dead(path: str, modified: float | None) -> bool:
    owner = owner_in(path)
    if owner is None:
        return False
    fate = fate_of(owner)
    return fate == "gone" or (fate == "elsewhere" and is_long_ago(modified))


def is_long_ago(modified: float | None) -> bool:
    """Return whether a time (seconds since 1970) is so long ago that a writer on another machine must be dead."""
    return modified is not None and time.time() - modified > SECONDS_UNTIL_DEAD
