"""Copies of the newest training state in shared memory, between two saves; they outlive the processes of the run.

A copy is written to a file in shared memory like a checkpoint: atomically, and with its hashes. `MemoryCopies` are of
whole states: the first process of each machine keeps one, so that any machine can restore all. A restarted run saves
the newest undamaged copy to its folder, if it is newer than the saved states, and resumes from it. For states that are
sharded over many machines, `memory_shares.py` keeps the shards of each process.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from xdpx.checkpoints import layout
from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.folders import Ranks
from xdpx.logger import log
from xdpx.utils import commit, io
from xdpx.utils.memory import available_memory
from xdpx.utils.owners import machine_id
from xdpx.utils.progress import format_bytes

SHARED_MEMORY = "/dev/shm"
IDENTITY = "memory_copies.json"
"""File in save_dir with the id of the run, so that copies of an earlier run in the same folder are never used."""
OWNER = "copy_of"
ROOM = 3.0
"""Required free memory as a multiple of a copy: the previous copy stays until the new one is complete, and training
needs memory too."""
SECONDS_UNTIL_FORGOTTEN = 86_400.0
BLOCK = 1 << 22


class RunMemory:
    """The folder of a run in the shared memory of its machines: its path, its run's id, and the free memory.

    Args:
        folder: of the run.
        ranks: the processes that train together.
        interval: number of updates between two copies.

    Attributes:
        place: the folder in shared memory, common to all processes of a machine.
        writes: whether this process keeps a copy.
    """

    writes = True

    def __init__(self, folder: str, ranks: Ranks, *, interval: int) -> None:
        self.folder, self.interval = io.plain(folder), interval
        self._ranks = ranks
        digest = hashlib.sha256(os.path.abspath(self.folder).encode()).hexdigest()[:16]
        self._home = os.path.join(SHARED_MEMORY, f"xdpx-{os.getuid()}")
        self.place = os.path.join(self._home, digest)
        self._identity = ""
        self._wanted: bool | None = None

    # ---- the life of a run

    def begin(self, *, anew: bool) -> None:
        """Set the id of the run, and remove outdated copies; call it on all processes.

        Args:
            anew: a new run begins: it gets a new id, and the copies of earlier runs are removed.
        """
        if self._ranks.rank == 0:
            self._identity = "" if anew else self._written_identity()
            if not self._identity:
                self._identity = secrets.token_hex(16)
                commit.write_text(io.join(self.folder, IDENTITY), json.dumps({"run": self._identity}) + "\n")
        self._identity = self._ranks.broadcast(self._identity)
        if anew:
            self.forget()
        self._forget_others()

    def has_room(self, size: Callable[[], int]) -> bool:
        """Return whether all machines have memory for the copies of their processes; call it on all processes.

        Computed at the first call only.

        Args:
            size: returns the bytes of the copy of this process; 0 if it keeps none.
        """
        if self._wanted is None:
            num_bytes = size()
            there = os.path.isdir(SHARED_MEMORY)
            free = min(io.local_files.usable_space(SHARED_MEMORY), available_memory()) if there else 0
            told = self._ranks.broadcast(self._ranks.gather([machine_id(), num_bytes, free]))
            wanted: Counter[str] = Counter()
            for machine, count, _ in told:
                wanted[machine] += count
            short = [(wanted[machine], free) for machine, _, free in told if free < ROOM * wanted[machine]]
            self._wanted = not short
            if short:
                count, free = short[0]
                text = f"{format_bytes(count)} of state, and {format_bytes(free)} of shared memory are free"
                log.warning(f"no copy of the state is kept in memory: {text}. Only what is saved can be resumed.")
        return self._wanted

    def forget(self) -> None:
        """Remove the copies of this machine; does nothing on other than its first process."""
        if self._ranks.local_rank == 0 and os.path.isdir(self.place):
            io.rmtree(self.place)

    # ---- folders

    def _written_identity(self) -> str:
        path = io.join(self.folder, IDENTITY)
        if not io.isfile(path):
            return ""
        with io.open(path) as file:
            text = file.read()
        try:
            return str(json.loads(text)["run"])
        except (ValueError, KeyError, TypeError):
            return ""

    def _make_home(self) -> None:
        """Create the folder of this user. Raises OSError if it is another user's, as its name can be guessed."""
        if not os.path.isdir(SHARED_MEMORY):
            raise FileNotFoundError(f"there is no {SHARED_MEMORY} on this machine.")
        if not os.path.lexists(self._home):
            io.local_files.make_private_folder(self._home)
        found = os.lstat(self._home)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{self._home} is not a folder that only this user can access. Remove it.")

    def _forget_others(self) -> None:
        """Remove the copies of other runs that have not been changed for a day."""
        if self._ranks.local_rank != 0 or not os.path.isdir(self._home):
            return
        for entry in os.scandir(self._home):
            if entry.path != self.place and time.time() - _last_change(entry.path) > SECONDS_UNTIL_FORGOTTEN:
                io.rmtree(entry.path)


class MemoryCopies(RunMemory):
    """Copies of whole states, one per machine, kept by its first process."""

    def __init__(self, folder: str, ranks: Ranks, *, interval: int) -> None:
        super().__init__(folder, ranks, interval=interval)
        self.writes = ranks.local_rank == 0
        self._files = Checkpointer(self.place, writes=self.writes)

    def is_wanted(self, state: Mapping[str, Any]) -> bool:
        """Return whether all machines have memory for copies of a state; call it on all processes."""
        from xdpx.checkpoints.trusted import bytes_of

        return self.has_room(lambda: bytes_of(state) if self.writes else 0)

    def save(self, step: int, state: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Replace the copy of this machine; does nothing on other than its first process. Logs failures."""
        if not self.writes:
            return
        try:
            self._make_home()
            self._files.save_state(step, state, facts={**facts, OWNER: self._identity})
            for old in self._files.state_steps():
                if old != step:
                    commit.discard(self.place, layout.state_name(old))
        except OSError as error:
            log.warning(f"no copy of the state is kept in memory: {error}", once=True)

    # ---- after a restart

    def bring_back(self) -> None:
        """Save the newest copy to the folder of the run, if it is newer than any state there; call on all processes."""
        identity = self._ranks.broadcast(self._written_identity() if self._ranks.rank == 0 else "")
        own = self._newest(identity) if identity and self._ranks.local_rank == 0 else 0
        steps = self._ranks.broadcast(self._ranks.gather(own))
        best = max(steps)
        if best and best > self._ranks.broadcast(self._saved(best) if self._ranks.rank == 0 else 0):
            if self._ranks.rank == steps.index(best):
                self._commit(best)
            self._ranks.barrier()

    def _newest(self, identity: str) -> int:
        """Return the step of the newest copy of this run that matches its hashes; 0 if there is none."""
        for step in reversed(self._files.state_steps()):
            manifest = commit.read_manifest(self.place, layout.state_name(step))
            if manifest is not None and manifest.facts.get(OWNER) == identity:
                faults = self._files.state_problems(step)
                if not faults:
                    return step
                log.warning(f"the copy of step {step} in memory is not used: {'; '.join(faults)}")
        return 0

    def _saved(self, best: int) -> int:
        """Return the newest undamaged step on disk; 0 if all are older than the copy, which then are not verified."""
        saved = Checkpointer(self.folder)
        return saved.newest_state() or 0 if any(step >= best for step in saved.state_steps()) else 0

    def _commit(self, step: int) -> None:
        name, file_name = layout.state_name(step), layout.state_file(step)
        manifest = commit.read_manifest(self.place, name)
        facts = {key: value for key, value in (manifest.facts if manifest else {}).items() if key != OWNER}
        try:
            whole, copy = commit.Commit(self.folder, name, facts=facts), io.open(io.join(self.place, file_name), "rb")
            with copy, whole as opened, opened.open(file_name) as target:
                while block := copy.read(BLOCK):
                    target.write(block)
        except OSError as error:
            log.warning(f"the copy of step {step} in memory could not be saved, so an older state is resumed: {error}")
            return
        log.info(f"step {step} is resumed from its copy in memory: nothing newer was saved")


def _last_change(folder: str) -> float:
    """Return when a folder, or any folder below it, last got or lost a file; a run may change only the deepest."""
    try:
        return max((os.stat(path).st_mtime for path, _, _ in os.walk(folder)), default=time.time())
    except FileNotFoundError:  # another run is removing it
        return time.time()
