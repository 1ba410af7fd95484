"""A checkpoint that is a folder, `checkpoint-<step>/`: there whole or not at all, and looked at before it is used.

It is written as `checkpoint-<step>.tmp-<id>/`, into which any library may put its files. Then every file is hashed and
synced, `checkpoint.manifest.json` lists them, and one rename makes the folder count. An object store knows no rename:
there the manifest goes up last. A folder without manifest, as the Hugging Face Trainer writes it, is valid when each of
its files can be read.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from xdpx.checkpoints import foreign, parts
from xdpx.checkpoints.publishing import REPLACED, SET, publish, remove_tree, staging_of
from xdpx.logger import log
from xdpx.utils import commit, io
from xdpx.utils.owners import fate_of, new_owner_id, owner_in
from xdpx.utils.paths import StrPath
from xdpx.utils.progress import format_bytes
from xdpx.utils.storage import Entry

PREFIX = "checkpoint-"
MANIFEST = SET + commit.SUFFIX
FINITE = "finite"
"""In the manifest: whether all weights were finite."""
_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Ranks:
    """Which process this is among those that save together, and how they speak; by default it is alone.

    Attributes:
        rank, size: its number, from 0, and how many there are.
        local_rank: its number on its own machine.
        barrier: waits for all.
        broadcast: takes a value, gives that of rank 0.
        gather: takes a value, gives those of all, by rank; on others than rank 0 it may give nothing.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    barrier: Callable[[], object] = lambda: None
    broadcast: Callable[[Any], Any] = lambda value: value
    gather: Callable[[Any], list[Any] | None] = lambda value: [value]


ALONE = Ranks()


def folder_name(step: int) -> str:
    """Return the name of the checkpoint folder of a step."""
    return f"{PREFIX}{step}"


def step_of(name: str) -> int | None:
    """Return the step that a folder is the checkpoint of; None when the name is no such folder's."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


Naming = Callable[[str], int | None]
"""Gives the step that a folder of this name is the checkpoint of, None when it is no such folder."""


def steps(parent: StrPath, *, naming: Naming = step_of) -> list[int]:
    """Return the steps that have a folder, whole or not, lowest first. Numbers decide, never the time of a file."""
    place = io.plain(parent)
    if not io.isdir(place):
        return []
    names = (io.name(entry.path) for entry in io.store(place).children(place) if entry.folder)
    return sorted(step for step in map(naming, names) if step is not None)


# ---- write


class Staging:
    """A folder that is being written. Nobody sees it before it is whole.

    Attributes:
        path: a local folder; anything may be put into it, by any library.
        writes: whether this process writes the files that are not its own (weights, optimizer, ...).
        ranks: who writes together.
    """

    def __init__(self, path: str, *, writes: bool, ranks: Ranks) -> None:
        self.path, self.writes, self.ranks = path, writes, ranks

    def open(self, file_name: str, mode: str = "wb") -> IO[Any]:
        """Open one of the files for writing."""
        return io.open(io.join(self.path, file_name), mode)


class FolderCommit:
    """Write a folder whole or not at all. A context manager that gives a `Staging`; enter it on all processes.

    Leaving it by an exception on any process changes nothing, and raises on all of them.

    Args:
        parent: where the folder goes, any path; made when missing.
        name: of the folder; what has this name is replaced.
        facts: what JSON can hold, for whoever reads the manifest.
        ranks: who writes together.
        everywhere: each machine has a disk of its own and wants all files; else they share one.
        needs_bytes: when known, refuse at once if the disk has less room than 1.1 times this.
    """

    def __init__(
        self,
        parent: StrPath,
        name: str,
        *,
        facts: Mapping[str, Any] | None = None,
        ranks: Ranks = ALONE,
        everywhere: bool = False,
        needs_bytes: int = 0,
    ) -> None:
        if not name or "/" in name:
            raise ValueError(f"'{name}' is no name for a checkpoint: it must be one part of a path.")
        self.parent, self.name, self.facts, self.ranks = io.plain(parent), name, dict(facts or {}), ranks
        self._writes = ranks.rank == 0 or (everywhere and ranks.local_rank == 0)
        self._needs_bytes = needs_bytes
        self._owner = ""

    @property
    def target(self) -> str:
        """The folder as it will be called."""
        return io.join(self.parent, self.name)

    @property
    def staged(self) -> str:
        """The folder as it is called until it is whole."""
        return staging_of(self.parent, self.name, self._owner)

    def __enter__(self) -> Staging:
        self._owner = str(self.ranks.broadcast(new_owner_id()))
        self._agree(attempt(self._prepare))
        return Staging(self.staged, writes=self._writes, ranks=self.ranks)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Exception):
            self._clear()  # this process is being ended; whoever waits for it will notice
            return
        try:
            self._agree(error)
            self._publish()
        finally:
            self._clear()

    def _prepare(self) -> None:
        files = io.local_files
        if io.islocal(self.parent):
            files.make_folder(self.parent)
            room = files.usable_space(self.parent)
            if room < 1.1 * self._needs_bytes:
                text = f"Needs {format_bytes(1.1 * self._needs_bytes)}, but only {format_bytes(room)} are free"
                raise OSError(errno.ENOSPC, text, self.target)
        files.make_folder(self.staged)

    def _agree(self, error: BaseException | None) -> None:
        agree(self.ranks, error, self.target)

    def _publish(self) -> None:
        first = self.ranks.rank == 0
        self._agree(attempt(self._publish_mine) if first else None)
        if not first and self.ranks.local_rank == 0 and io.islocal(self.parent):
            manifest = commit.read_manifest(self.target, SET)
            if (manifest is None or manifest.id != self._owner) and io.isdir(self.staged):
                self._publish_mine()  # this machine has a disk of its own

    def _publish_mine(self) -> None:
        publish(self.parent, self.name, self._owner, facts={"processes": self.ranks.size, **self.facts})

    def _clear(self) -> None:
        if self.ranks.local_rank == 0:
            with contextlib.suppress(OSError):
                remove_tree(self.staged)


def attempt(work: Callable[[], object]) -> Exception | None:
    """Do something, and return its error instead of raising it."""
    try:
        work()
    except Exception as error:
        return error
    return None


def agree(ranks: Ranks, error: BaseException | None, target: str) -> None:
    """Raise on all processes when one has failed: its own error there, a word about it elsewhere.

    Args:
        ranks: all of them call this.
        error: of this process, None when all went well.
        target: what was being saved.
    """
    told = "" if error is None else f"{type(error).__name__}: {error}"
    reports = ranks.broadcast(ranks.gather(told))
    if error is not None:
        raise error
    for rank, report in enumerate(reports or []):
        if report:
            raise OSError(f"{target} was not saved: process {rank} failed ({report}). Nothing was changed.")


def commit_folder(
    parent: StrPath,
    name: str,
    write: Callable[[Staging], object],
    *,
    facts: Mapping[str, Any] | None = None,
    ranks: Ranks = ALONE,
    everywhere: bool = False,
) -> str:
    """Let `write` fill a folder, and make it count, whole or not at all; call it on all processes.

    Returns:
        The path of the folder.

    Raises:
        OSError: it could not be written; what was there stays.
    """
    whole = FolderCommit(parent, name, facts=facts, ranks=ranks, everywhere=everywhere)
    with whole as staging:
        write(staging)
    return whole.target


# ---- what is there


@dataclass(frozen=True)
class NewestCheckpoint:
    """The newest checkpoint that can be used, None when there is none; why each newer one cannot; what was changed."""

    path: str | None
    skipped: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def newest(parent: StrPath, *, resumable: bool = True, changed: bool = False) -> str | None:
    """Return the newest `checkpoint-<step>` that can be trusted; each one that is passed over is named in the log.

    Args:
        parent: the folder of a run.
        resumable: leave out those that hold weights only.
        changed: take also one that was changed on purpose, see `damage`.
    """
    found = find(parent, resumable=resumable, changed=changed)
    for reason in found.skipped:
        log.warning(f"Not used: {reason}")
    if found.path and found.changes:
        tell_changes(found.path, found.changes)
    return found.path


def tell_changes(path: str, changes: Iterable[str]) -> None:
    """Return what was changed in a checkpoint that is used all the same."""
    log.warning(f"{path} is used as it is now: {' '.join(changes)} What was removed begins anew.")


def _never_resumable(path: str) -> bool:
    """Return whether no state of an optimizer was ever written into a checkpoint."""
    manifest = manifest_of(path)
    return manifest is None or not any(name.partition("/")[0] in parts.ANY_OPTIMIZER for name in manifest.files)


def find(parent: StrPath, *, resumable: bool = True, changed: bool = False) -> NewestCheckpoint:
    """Look for the newest checkpoint, as `newest` does, and return the reasons instead of logging them."""
    place = io.plain(parent)
    recover(place)
    skipped: list[str] = []
    for step in reversed(steps(place)):
        path = io.join(place, folder_name(step))
        faults = check(path)
        usable = changed and faults and not damage(path) and not (resumable and _never_resumable(path))
        changes = faults if usable else []
        faults = [] if usable else faults or (missing_parts(path) if resumable else [])
        other_weights = any(parts.holds_weights(change.partition(":")[0]) for change in changes)
        if not faults and not other_weights and not is_finite(path):
            faults = ["weights in it are NaN or infinite."]
        if not faults:
            return NewestCheckpoint(path, tuple(skipped), tuple(changes))
        skipped.append(f"{path}: {' '.join(faults)}")
    return NewestCheckpoint(None, tuple(skipped))


def check(path: StrPath, *, hashes: bool = True) -> list[str]:
    """Return what is damaged in a checkpoint folder; an empty list means that it can be trusted.

    Args:
        path: the folder.
        hashes: read every byte, and compare with what was written; else only look for the files and their sizes.
    """
    place = io.plain(path)
    if not io.isdir(place):
        return [f"{io.name(place)}: there is no such folder."]
    if io.exists(io.join(place, MANIFEST)):
        return commit.problems(place, SET, hashes=hashes)
    return foreign.problems(place, hashes=hashes)


def damage(path: StrPath) -> list[str]:
    """Return what is wrong with a checkpoint folder besides what somebody may have changed on purpose.

    On purpose weights are averaged, written anew in more or fewer files, or replaced; any file may have been removed
    but the state of the run. What is there must be readable, and all but the weights what was written.
    """
    place = io.plain(path)
    faults = [
        f"{name}: {trouble}."
        for name, trouble in commit.troubles(place, SET, hashes=True).items()
        if name == parts.STATE or not (trouble == commit.MISSING or parts.holds_weights(name))
    ]
    return faults + foreign.problems(place, hashes=True)


def manifest_of(path: StrPath) -> commit.Manifest | None:
    """Return the manifest of a checkpoint folder; None when it has none, or none that can be trusted."""
    return commit.read_manifest(path, SET)


def is_finite(path: StrPath) -> bool:
    """Return whether the weights of a checkpoint were finite when it was written; yes where it does not say."""
    manifest = manifest_of(path)
    return manifest is None or bool(manifest.facts.get(FINITE, True))


def missing_parts(path: StrPath) -> list[str]:
    """Return what a checkpoint lacks to be continued from; nothing when it has it all."""
    return foreign.missing_parts(io.plain(path))


def beside(path: str | None, parent: StrPath) -> str | None:
    """Find a checkpoint that was recorded by its path when its run has been moved since; None when it is gone.

    Args:
        path: as it was recorded, e.g. `best_model_checkpoint` of a `trainer_state.json`.
        parent: where the checkpoints of the run are now.
    """
    if not path or io.isdir(path):
        return path or None
    moved = io.join(io.plain(parent), io.name(path))
    return moved if io.isdir(moved) else None


# ---- after a crash


def recover(parent: StrPath, *, naming: Naming = step_of) -> None:
    """Finish what dead writers had written whole, and remove the rest of what they left."""
    place = io.plain(parent)
    if not io.islocal(place) or not io.isdir(place):
        return
    left = [entry for entry in io.store(place).children(place) if entry.folder and owner_in(entry.path)]
    for entry in sorted(left, key=lambda entry: REPLACED in entry.path):  # the new before what it was to replace
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another process may do the same
            _settle(entry, naming)


def _settle(entry: Entry, naming: Naming) -> None:
    owner, target = owner_in(entry.path) or "", entry.path.rpartition(".tmp-")[0]
    fate = fate_of(owner)
    if fate == "alive":
        return
    wanted = target.removesuffix(REPLACED)
    is_whole = wanted != target or not commit.problems(entry.path, SET, hashes=False)
    if naming(io.name(wanted)) is not None and is_whole and not io.exists(wanted):
        io.local_files.rename(entry.path, wanted)
        io.local_files.sync_folder(io.parent(wanted) or ".")
        log.info(f"{wanted}: was written whole when its run was killed, and is used.")
    elif fate == "gone" or commit.is_long_ago(entry.modified):
        remove_tree(entry.path)
