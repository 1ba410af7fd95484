"""Checkpoints that are folders, `checkpoint-<step>/`: written atomically, and verified before use.

A checkpoint is written as `checkpoint-<step>.tmp-<id>/`, into which any library may write its files. Then every file is
hashed and synced, `checkpoint.manifest.json` lists them, and one rename publishes the folder. An object store has no
rename: there the manifest is uploaded last. A folder without manifest, as written by the Hugging Face Trainer, is valid
if each of its files can be read.
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
from xdpx.utils.storage import Entry, walk

PREFIX = "checkpoint-"
MANIFEST = SET + commit.SUFFIX
FINITE = "finite"
"""Key of the manifest: whether all weights were finite."""
_NAME = re.compile(r"checkpoint-(\d+)")


class DamagedCheckpoint(OSError, ValueError):
    """A checkpoint folder is missing, does not match its manifest, or has another format; the message says where.

    It is a fault of the disk; and a ValueError, as the original raises it.
    """


@dataclass(frozen=True)
class Ranks:
    """The process group that saves together, and its collectives; by default of this process only.

    Attributes:
        rank, size: rank of this process, from 0, and number of processes.
        local_rank: rank among the processes of this machine.
        barrier: waits for all processes.
        broadcast: returns the value passed by rank 0.
        gather: returns the values passed by all, by rank; may return None on other ranks than 0.
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
    """Return the step in the name of a checkpoint folder; None for other names."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


Naming = Callable[[str], int | None]
"""Returns the step in the name of a checkpoint folder; None for other names."""


def steps(parent: StrPath, *, naming: Naming = step_of) -> list[int]:
    """Return the steps that have a folder, complete or not, ascending; modification times are ignored."""
    place = io.plain(parent)
    if not io.isdir(place):
        return []
    names = (io.name(entry.path) for entry in io.store(place).children(place) if entry.folder)
    return sorted(step for step in map(naming, names) if step is not None)


# ---- write


class Staging:
    """A folder that is being written; it has a temporary name until it is complete.

    Attributes:
        path: the local folder, into which any library may write.
        writes: whether this process writes the files that are common to all (weights, optimizer, ...).
        ranks: the processes that write together.
    """

    def __init__(self, path: str, *, writes: bool, ranks: Ranks) -> None:
        self.path, self.writes, self.ranks = path, writes, ranks

    def open(self, file_name: str, mode: str = "wb") -> IO[Any]:
        """Open a file of the folder for writing."""
        return io.open(io.join(self.path, file_name), mode)


class FolderCommit:
    """Writes a folder atomically. A context manager that returns a `Staging`; enter it on all processes.

    If the block raises on any process, nothing is changed, and all processes raise.

    Args:
        parent: of the folder, local or remote; created if missing.
        name: of the folder; an existing one of this name is replaced, but what users' code wrote into it before it was
            a checkpoint stays.
        facts: JSON values for the manifest.
        ranks: the processes that write together.
        everywhere: each machine has its own disk and needs all files; else they share one.
        needs_bytes: expected size, if known: entering raises OSError if less than 1.1 times this is free.
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
            raise ValueError(f"'{name}' is not a name for a checkpoint: it must be one part of a path.")
        self.parent, self.name, self.facts, self.ranks = io.plain(parent), name, dict(facts or {}), ranks
        self._writes = ranks.rank == 0 or (everywhere and ranks.local_rank == 0)
        self._needs_bytes = needs_bytes
        self._owner = ""

    @property
    def target(self) -> str:
        """Path of the finished folder."""
        return io.join(self.parent, self.name)

    @property
    def staged(self) -> str:
        """Path of the folder while it is being written."""
        return staging_of(self.parent, self.name, self._owner)

    def __enter__(self) -> Staging:
        self._owner = str(self.ranks.broadcast(new_owner_id()))
        self._agree(attempt(self._prepare))
        return Staging(self.staged, writes=self._writes, ranks=self.ranks)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Exception):
            self._clear()  # this process is being stopped, which the processes that wait for it will notice
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
                self._publish_mine()  # this machine has its own disk

    def _publish_mine(self) -> None:
        _bring_over(self.target, self.staged)
        publish(self.parent, self.name, self._owner, facts={"processes": self.ranks.size, **self.facts})

    def _clear(self) -> None:
        if self.ranks.local_rank == 0:
            with contextlib.suppress(OSError):
                remove_tree(self.staged)


def _bring_over(target: str, staged: str) -> None:
    """Copy into a staged folder what users' code wrote into the final one, e.g. an override that saves a part itself.

    A finished checkpoint is replaced as a whole, and so are the parts of one that another Trainer had begun.
    """
    if not io.islocal(target) or not io.isdir(target):
        return
    if any(io.exists(io.join(target, name)) for name in (MANIFEST, parts.STATE)):
        return
    for entry in walk(io.local_files, target):
        name = entry.path.removeprefix(target).lstrip("/")
        copied = io.join(staged, name)
        if not parts.is_part(name) and not io.exists(copied):
            io.copy(entry.path, copied)


def attempt(work: Callable[[], object]) -> Exception | None:
    """Call `work`, and return its exception instead of raising it; None if there is none."""
    try:
        work()
    except Exception as error:
        return error
    return None


def agree(ranks: Ranks, error: BaseException | None, target: str) -> None:
    """Raise on all processes if one has failed: its own error there, and an OSError that quotes it on the others.

    Args:
        ranks: the processes, which must all call this.
        error: of this process; None if it succeeded.
        target: path that is being saved, for the message.
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
    """Write a folder atomically, its files by calling `write`; call it on all processes.

    Returns:
        The path of the folder.

    Raises:
        OSError: writing failed; an existing folder is unchanged.
    """
    whole = FolderCommit(parent, name, facts=facts, ranks=ranks, everywhere=everywhere)
    with whole as staging:
        write(staging)
    return whole.target


# ---- read


@dataclass(frozen=True)
class NewestCheckpoint:
    """The result of the search for the newest checkpoint.

    Attributes:
        path: of the newest usable checkpoint; None if there is none.
        skipped: reason why each newer one cannot be used.
        changes: how its files differ from its manifest, if it was changed on purpose.
    """

    path: str | None
    skipped: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def newest(parent: StrPath, *, resumable: bool = True, changed: bool = False) -> str | None:
    """Return the newest undamaged `checkpoint-<step>`; each one that is skipped is logged.

    Args:
        parent: the folder of a run.
        resumable: skip checkpoints that lack the files to resume from.
        changed: accept a checkpoint that was changed on purpose, see `damage`.
    """
    found = find(parent, resumable=resumable, changed=changed)
    for reason in found.skipped:
        log.warning(f"Not used: {reason}")
    if found.path and found.changes:
        tell_changes(found.path, found.changes)
    return found.path


def tell_changes(path: str, changes: Iterable[str]) -> None:
    """Log a warning that a checkpoint is used although it was changed."""
    log.warning(f"{path} is used as it is now: {' '.join(changes)} What was removed starts over.")


def _never_resumable(path: str) -> bool:
    """Return whether the manifest of a checkpoint lists no optimizer state, or there is no manifest."""
    manifest = manifest_of(path)
    return manifest is None or not any(name.partition("/")[0] in parts.ANY_OPTIMIZER for name in manifest.files)


def find(parent: StrPath, *, resumable: bool = True, changed: bool = False) -> NewestCheckpoint:
    """Find the newest checkpoint like `newest`, and return the reasons instead of logging them."""
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
    """Return the problems of a checkpoint folder; none if it is undamaged.

    Args:
        path: the folder.
        hashes: whether to compare the hashes of all files; otherwise only existence and sizes are checked.
    """
    place = io.plain(path)
    if not io.isdir(place):
        return [f"{io.name(place)}: there is no such folder."]
    if io.exists(io.join(place, MANIFEST)):
        return commit.problems(place, SET, hashes=hashes)
    return foreign.problems(place, hashes=hashes)


def damage(path: StrPath) -> list[str]:
    """Return the problems of a checkpoint folder other than changes that may be intended.

    Users may average or replace weights, or store them in more or fewer files, and remove any file but
    `trainer_state.json`. All files must be readable, and those without weights match their hashes.
    """
    place = io.plain(path)
    faults = [
        f"{name}: {trouble}."
        for name, trouble in commit.troubles(place, SET, hashes=True).items()
        if name == parts.STATE or not (trouble == commit.MISSING or parts.holds_weights(name))
    ]
    return faults + foreign.problems(place, hashes=True)


def manifest_of(path: StrPath) -> commit.Manifest | None:
    """Return the manifest of a checkpoint folder; None if it is missing or damaged."""
    return commit.read_manifest(path, SET)


def is_checkpoint(path: StrPath) -> bool:
    """Return whether a folder holds a file that some Trainer writes into checkpoints, whole or not."""
    place = io.plain(path)
    names = [io.name(entry.path) for entry in io.store(place).children(place)] if io.isdir(place) else []
    return any(name == MANIFEST or parts.is_part(name) or parts.holds_weights(f"{name}/") for name in names)


def is_finite(path: StrPath) -> bool:
    """Return whether the weights of a checkpoint were finite when it was written; True if it is not recorded."""
    manifest = manifest_of(path)
    return manifest is None or bool(manifest.facts.get(FINITE, True))


def missing_parts(path: StrPath) -> list[str]:
    """Return the files that a checkpoint lacks to be resumed from, in at most one sentence."""
    return foreign.missing_parts(io.plain(path))


def beside(path: str | None, parent: StrPath) -> str | None:
    """Return the current path of a checkpoint whose run may have been moved; None if it no longer exists.

    Args:
        path: recorded earlier, e.g. `best_model_checkpoint` of a `trainer_state.json`.
        parent: the current folder of the run's checkpoints.
    """
    if not path or io.isdir(path):
        return path or None
    moved = io.join(io.plain(parent), io.name(path))
    return moved if io.isdir(moved) else None


# ---- after a crash


def recover(parent: StrPath, *, naming: Naming = step_of) -> None:
    """Publish folders that dead processes had written completely, and remove their incomplete ones."""
    _settle_all(parent, naming, lambda name: True)


def recover_one(parent: StrPath, name: str) -> None:
    """Recover one folder that is not a checkpoint: restore what it was replacing, and remove incomplete copies."""
    _settle_all(parent, lambda found: 0, lambda found: found == name)


def _settle_all(parent: StrPath, naming: Naming, wanted: Callable[[str], bool]) -> None:
    place = io.plain(parent)
    if not io.islocal(place) or not io.isdir(place):
        return
    left = [
        entry
        for entry in io.store(place).children(place)
        if entry.folder and owner_in(entry.path) and wanted(io.name(_target(entry).removesuffix(REPLACED)))
    ]
    for entry in sorted(left, key=lambda entry: REPLACED in entry.path):  # new folders before those they replace
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another process may recover too
            _settle(entry, naming)


def _target(entry: Entry) -> str:
    return entry.path.rpartition(".tmp-")[0]


def _settle(entry: Entry, naming: Naming) -> None:
    owner, target = owner_in(entry.path) or "", _target(entry)
    fate = fate_of(owner)
    if fate == "alive":
        return
    wanted = target.removesuffix(REPLACED)
    is_whole = wanted != target or not commit.problems(entry.path, SET, hashes=False)
    if naming(io.name(wanted)) is not None and is_whole and not io.exists(wanted):
        io.local_files.rename(entry.path, wanted)
        io.local_files.sync_folder(io.parent(wanted) or ".")
        log.info(f"{wanted}: was complete when its run was killed, and is used.")
    elif fate == "gone" or commit.is_long_ago(entry.modified):
        remove_tree(entry.path)
