"""Copies of checkpoint folders in shared memory, one per machine, written like any checkpoint."""

from __future__ import annotations

from xdpx.checkpoints import folders
from xdpx.checkpoints.folders import FolderCommit, Ranks
from xdpx.checkpoints.memory_copies import RunMemory
from xdpx.checkpoints.publishing import discard
from xdpx.logger import log
from xdpx.utils import io


class MemoryFolders(RunMemory):
    """The copies of one run, in a folder named by the id of the run.

    Args:
        folder, ranks, interval: see `RunMemory`.
        everywhere: whether the first process of each machine keeps a copy; otherwise only rank 0 does.
    """

    def __init__(self, folder: str, ranks: Ranks, *, interval: int, everywhere: bool = False) -> None:
        super().__init__(folder, ranks, interval=interval)
        self.writes = ranks.rank == 0 or (everywhere and ranks.local_rank == 0)

    @property
    def parent(self) -> str:
        """The folder with the copies, which have the usual names of checkpoints."""
        return io.join(self.place, self._identity)

    def is_ready(self, num_bytes: int) -> bool:
        """Return whether all machines have memory and a folder for copies of this size; call it on all processes."""
        if not self.has_room(lambda: num_bytes if self.writes else 0):
            return False
        trouble = ""
        if self.writes:
            try:
                self._make_home()
            except OSError as error:
                trouble = str(error)
        told = [each for each in self._ranks.broadcast(self._ranks.gather(trouble)) if each]
        if told:
            log.warning(f"no copy of the state is kept in memory: {told[0]}", once=True)
        return not told

    def keep(self, step: int) -> None:
        """Remove all copies but that of `step`; call it on the processes that write, when that copy is complete."""
        for old in folders.steps(self.parent):
            if old != step:
                discard(io.join(self.parent, folders.folder_name(old)))

    def bring_back(self) -> None:
        """Save the newest copy to the folder of the run, if it is newer than any state there; call on all processes."""
        self._identity = self._ranks.broadcast(self._written_identity() if self._ranks.rank == 0 else "")
        own = 0
        if self._identity and self.writes and io.isdir(self.parent):
            found = folders.find(self.parent)
            for reason in found.skipped:
                log.warning(f"a copy in memory is not used: {reason}")
            own = _step_of(found.path)
        steps = self._ranks.broadcast(self._ranks.gather(own))
        best = max(steps)
        if best and self._ranks.broadcast(self._is_new(best) if self._ranks.rank == 0 else None):
            if self._ranks.rank == steps.index(best):
                self._commit(best)
            self._ranks.barrier()

    def _is_new(self, step: int) -> bool:
        there = folders.steps(self.folder)
        if all(each < step for each in there):
            return True
        return _step_of(folders.find(self.folder).path) < step

    def _commit(self, step: int) -> None:
        name = folders.folder_name(step)
        source = io.join(self.parent, name)
        manifest = folders.manifest_of(source)
        try:
            if manifest is None:
                raise FileNotFoundError(f"{source}: is gone")
            with FolderCommit(self.folder, name, facts=manifest.facts) as staging:
                for file_name in manifest.files:
                    io.makedirs(io.parent(io.join(staging.path, file_name)), exist_ok=True)
                    io.copy(io.join(source, file_name), io.join(staging.path, file_name))
        except OSError as error:
            log.warning(f"the copy of step {step} in memory could not be saved, so an older state is resumed: {error}")
            return
        log.info(f"step {step} is resumed from its copy in memory: nothing newer was saved")


def _step_of(path: str | None) -> int:
    return 0 if path is None else folders.step_of(io.name(path)) or 0
