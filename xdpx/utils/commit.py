"""Whole or not at all: every file a user would miss is written through here.

One file: `replacing` writes beside and renames. Several that belong together: `Commit`. Its files are first written
whole under temporary names; then `<name>.manifest.json.next`, the promise, appears in one step, and from there on the
new files count: whoever comes next carries the promise out if its writer died. On an object store, where nothing can be
renamed, a first commit puts its manifest last, and a repeated one stages its files and keeps the same promise.
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
"""Temporary files of a process on another machine go when they have not changed for so long."""
_publishing: set[str] = set()


# ---- several files


class Commit:
    """A set of files that become visible together. A context manager; leaving it by an exception changes nothing.

    Args:
        folder: where they go, any path; made when missing.
        name: what the set is called; `<name>.manifest.json` beside the files says that they are whole.
        facts: what JSON can hold, for whoever reads the manifest.
        needs_bytes: when known, refuse at once if the disk has less room than 1.1 times this.
    """

    def __init__(
        self, folder: StrPath, name: str, *, facts: Mapping[str, Any] | None = None, needs_bytes: int = 0
    ) -> None:
        if not name or "/" in name:
            raise ValueError(f"'{name}' is no name for a commit: it must be one part of a path.")
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

        With `private`, only this user may read it, on this machine.
        """
        if mode not in {"w", "wb"}:
            raise ValueError(f"{file_name}: mode '{mode}' makes no sense for a new file. Use w or wb.")
        staged = self._stage(file_name)
        writer = HashingWriter(staged, lambda facts: self._files.__setitem__(file_name, facts))
        if private:
            io.local_files.make_private(staged)
        return writer.as_text(newline) if mode == "w" else writer.as_bytes()

    def adopt(self, file_name: str, local_path: StrPath) -> None:
        """Move an already written local file in."""
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
            with contextlib.suppress(OSError):  # the new set is whole; what is left over harms nobody
                io.store(self.folder).delete(io.join(self.folder, retired))

    def _publish_here(self, data: bytes) -> None:
        # The promise must not reach the disk before the names of what it promises.
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
            return  # promised: whoever comes next needs them
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
    """Commit files as they are already there: write the manifest that lists them, unless it does so already."""
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
    """Carry out what a dead writer promised; wait a little for a live one. Does nothing when there is no promise."""
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
    # Safe to repeat, and for two processes at once: each step is done by whoever finds it undone.
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
            return  # another process carried it out meanwhile
        raise
    store.put(_manifest(folder, name), data)
    store.delete(_promise(folder, name))
    for target in targets:
        store.delete(temporary_name(target, manifest.id))


# ---- what is there

_ABSENT = "there is no manifest"


def _read(path: str) -> bytes | None:
    try:
        return io.store(path).read_bytes(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return b""  # which is no manifest: it counts as damaged


def _load(folder: StrPath, name: str) -> Manifest | str:
    """Return the manifest, or what is wrong with it. A promise is carried out first, if this process may."""
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
    """Return the manifest of a committed set, or None when there is none that can be trusted."""
    found = _load(folder, name)
    return None if isinstance(found, str) else found


def manifests(folder: StrPath) -> list[str]:
    """Name the sets that have a manifest in a folder, sorted; none when the folder is not there."""
    try:
        names = io.listdir(folder, contains=SUFFIX)
    except FileNotFoundError:
        return []
    found = {name.removesuffix(suffix) for name in names for suffix in (SUFFIX, PROMISE) if name.endswith(suffix)}
    return sorted(found)


def problems(folder: StrPath, name: str, *, hashes: bool) -> list[str]:
    """Return what is wrong with a committed set; an empty list means that it is valid.

    Args:
        folder: where it is.
        name: what it is called.
        hashes: also read every byte and compare SHA-256; else only presence and sizes.

    Returns:
        One sentence per problem, each naming the file.
    """
    return [f"{what}: {trouble}." for what, trouble in troubles(folder, name, hashes=hashes).items()]


def troubles(folder: StrPath, name: str, *, hashes: bool) -> dict[str, str]:
    """Return what is wrong with each file of a committed set, by file name; by that of the set without a manifest."""
    manifest = _load(folder, name)
    if isinstance(manifest, str):
        return {name: manifest}
    place = io.plain(folder)
    found = {each: _trouble(io.join(place, each), facts, hashes) for each, facts in manifest.files.items()}
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
    """Remove a committed set: its manifest first, then its files, so that it is never taken for whole in between."""
    place, store = io.plain(folder), io.store(folder)
    found = _load(place, name)
    store.delete(_promise(place, name))
    store.delete(_manifest(place, name))
    if io.islocal(place):
        io.local_files.sync_folder(place or ".")
    for file_name in getattr(found, "files", ()):
        store.delete(io.join(place, file_name))


def sweep(folder: StrPath) -> list[str]:
    """Remove temporary files whose writers are gone, and carry out what dead writers had promised.

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
    """Remove what dead writers of one file left beside it; of files of other names nothing."""
    place = io.plain(path)
    _sweep_children(io.parent(place), f"{io.name(place)}.tmp-")


def sweep_top(folder: StrPath) -> None:
    """Remove what dead writers of files left in a local folder, and leave the folders in it alone."""
    _sweep_children(io.plain(folder), "")


def _sweep_children(folder: str, beginning: str) -> None:
    if io.islocal(folder) and io.isdir(folder or "."):
        for entry in io.store(folder).children(folder):
            if io.name(entry.path).startswith(beginning) and not entry.folder and _is_dead(entry.path, entry.modified):
                with contextlib.suppress(OSError):  # another's folder, or another process does the same
                    io.local_files.delete(entry.path)


def _is_dead(path: str, modified: float | None) -> bool:
    owner = owner_in(path)
    if owner is None:
        return False
    fate = fate_of(owner)
    return fate == "gone" or (fate == "elsewhere" and is_long_ago(modified))


def is_long_ago(modified: float | None) -> bool:
    """Tell whether something changed so long ago (seconds since 1970) that a writer elsewhere must be dead."""
    return modified is not None and time.time() - modified > SECONDS_UNTIL_DEAD
