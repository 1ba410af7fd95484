"""`<data_dir>.shards`: the folder through which the tasks of one x-prepro exchange results.

`plan` records the config, the raw files and the number of tasks; `counts` holds token and label counts, `made` the
samples of blocks, each piece committed with its hashes; `leases` keeps two tasks from the same work. `gathered` is
written when the data_dir has been made; then the pieces are removed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import RUN_ONLY_KEYS, Run, fingerprint
from xdpx.datasets.raw_data import identity
from xdpx.utils import commit, io
from xdpx.utils.leases import HEARTBEAT_SECONDS, SECONDS_UNTIL_DEAD, Lease, LeaseHeld
from xdpx.utils.owners import fate_of
from xdpx.utils.raw_places import is_table

SUFFIX = ".shards"
PLAN, GATHERED, CONFIG = "plan", "gathered", "config.json"
MADE, COUNTS = "made", "counts"
SECONDS_TO_WAIT = SECONDS_UNTIL_DEAD + 3 * HEARTBEAT_SECONDS
"""Maximum wait for a task on another machine that may be dead: until its lease would have expired."""

Facts = dict[str, Any]


def place_of(data_dir: str) -> str:
    """Return the folder beside a data_dir that is shared by its tasks."""
    return data_dir.rstrip("/") + SUFFIX


def source_of(path: str) -> Facts:
    """Return the identity of a raw file, equal for all tasks while it is unchanged; for a table only its name."""
    return {"path": path} if is_table(path) else identity(path)


class ShardFolder:
    """The folder shared by the tasks of one x-prepro.

    Args:
        run: of x-prepro, without the keys that define which task this is.
        count: number of tasks.
    """

    def __init__(self, run: Run, count: int) -> None:
        self.run, self.count = run, count
        self.path = place_of(run.parameters("command").data_dir)
        self.facts: Facts = {"fingerprint": fingerprint(run), "num_shards": count}
        self._sources: dict[str, Facts] = {}

    # ---- the plan

    def enter(self, paths: Mapping[str, str]) -> None:
        """Write the plan if there is none, or if that of a finished run differs; check an existing one.

        Args:
            paths: raw files by split.

        Raises:
            ConfigError: the existing plan is for another config, other raw files or another number of tasks.
            LeaseHeld: another task has not finished writing the plan.
        """
        self._sources = {split: source_of(path) for split, path in paths.items()}
        if self._agrees():
            return
        with self.lease(PLAN, patient=True):
            if self._agrees():
                return
            if commit.read_manifest(self.path, GATHERED) is not None:  # of a finished run: nothing is lost
                self._clear()
            known = {"source": self.run.source, "index": self.run.index, "total": self.run.total}
            values = {key: self.run.values[key] for key in sorted(self.run.changed)}
            written = commit.Commit(self.path, PLAN, facts={**self.facts, "sources": self._sources})
            with written, written.open(CONFIG, private=True) as file:
                file.write(json.dumps({**known, "values": values}, indent=2).encode())

    def _agrees(self) -> bool:
        manifest = commit.read_manifest(self.path, PLAN)
        if manifest is None:
            return False
        faults = self._differences(manifest.facts)
        if faults and commit.read_manifest(self.path, GATHERED) is None:
            raise ConfigError(self.path, faults)
        return not faults

    def _differences(self, facts: Mapping[str, Any]) -> list[Fault]:
        """Return faults for each difference between the existing plan and this run."""
        remedy = f"Go back to the original settings, or remove {self.path} to start over."
        faults = []
        if facts.get("num_shards") != self.count:
            was = facts.get("num_shards")
            faults.append(Fault("num_shards", f"was {was} when this was started, is now {self.count}.", remedy))
        if facts.get("fingerprint") != self.facts["fingerprint"]:
            told = "; ".join(self._changed_keys()) or "the config"
            faults.append(Fault("config", f"differs from the one that this was started with: {told}.", remedy))
        before, now = facts.get("sources", {}), self._sources
        for split in sorted({*before, *now}):
            if before.get(split) != now.get(split):
                path = (now.get(split) or before[split])["path"]
                faults.append(Fault("data_files", f"{path} is not the file that this was started with.", remedy))
        return faults

    def _changed_keys(self) -> list[str]:
        with suppress(ConfigError, OSError, ValueError, KeyError):
            before, now = stored_config(self.path)["values"], self.run.values
            compared = {*before, *self.run.changed} - RUN_ONLY_KEYS
            keys = sorted(key for key in compared if before.get(key) != now.get(key))
            return [f"{key} was {before.get(key, 'not set')!r}, is {now.get(key)!r}" for key in keys]
        return []

    # ---- pieces

    def done(self, kind: str) -> set[str]:
        """Return the names of the finished pieces of a kind (`made` or `counts`)."""
        folder = io.join(self.path, kind)
        return set(commit.manifests(folder)) if io.isdir(folder) else set()

    def missing(self) -> list[int]:
        """Return the tasks that have not made all of their pieces."""
        there = self.done(MADE)
        wanted = {index: {self.name(split, index) for split in self._sources} for index in range(self.count)}
        return [index for index, names in wanted.items() if not names <= there]

    def piece_facts(self, split: str) -> Facts:
        """Return the facts that the manifest of every piece of a split must have."""
        return {**self.facts, "source": self._sources[split]}

    def is_made(self, split: str, index: int) -> bool:
        """Return whether the piece of a task exists, is undamaged, and was made of this config and raw file."""
        folder, name = io.join(self.path, MADE), self.name(split, index)
        manifest = commit.read_manifest(folder, name)
        wanted = self.piece_facts(split)
        known = manifest is not None and all(manifest.facts.get(key) == value for key, value in wanted.items())
        return known and not commit.problems(folder, name, hashes=True)

    def name(self, what: str, index: int) -> str:
        """Return the name of a task's piece of `what`, such as a split."""
        return f"{what}-{index:05d}"

    @contextmanager
    def lease(self, name: str, *, patient: bool = False, waits: bool = True) -> Generator[None]:
        """Hold a lease on a piece of work while the block runs.

        Waits at most SECONDS_TO_WAIT for a holder on another machine, which may be dead, as after a requeue of the
        task.

        Args:
            name: of the piece of work.
            patient: also wait for a live holder on this machine.
            waits: False: never wait.

        Raises:
            LeaseHeld: another task holds the lease.
        """
        lease, end = Lease(io.join(self.path, "leases", name)), time.monotonic() + SECONDS_TO_WAIT
        while True:
            try:
                lease.acquire()
                break
            except LeaseHeld as error:
                elsewhere = fate_of(error.holder.id) == "elsewhere"
                if not waits or not (patient or elsewhere) or time.monotonic() > end:
                    raise
                time.sleep(0.1 if patient else 2.0)
        try:
            yield
        finally:
            lease.release()

    # ---- the end

    def finish(self, sizes: Mapping[str, int]) -> None:
        """Record that the data_dir has been made, and remove the pieces."""
        with commit.Commit(self.path, GATHERED, facts={**self.facts, "data_size": dict(sizes)}):
            pass
        self._remove_pieces()

    def gathered(self) -> dict[str, int] | None:
        """Return the number of samples of each split if the data_dir has been made of this folder, else None.

        If it was made, but has been removed or replaced since, the record of it is removed.
        """
        manifest = commit.read_manifest(self.path, GATHERED)
        if manifest is None:
            return None
        sizes: dict[str, int] = manifest.facts["data_size"]
        data_dir = self.run.parameters("command").data_dir
        for split in self._sources:
            there = commit.read_manifest(data_dir, split)
            if there is None or there.facts.get("fingerprint") != self.facts["fingerprint"]:
                commit.discard(self.path, GATHERED)  # the data_dir was removed or replaced: make it again
                return None
        return sizes

    def _clear(self) -> None:
        commit.discard(self.path, GATHERED)
        commit.discard(self.path, PLAN)
        self._remove_pieces()

    def _remove_pieces(self) -> None:
        for kind in (MADE, COUNTS):
            if io.isdir(io.join(self.path, kind)):
                io.rmtree(io.join(self.path, kind))


def stored_config(place: str) -> dict[str, Any]:
    """Return the config of the tasks of a folder: its source, and the values that were set.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    problems = commit.problems(place, PLAN, hashes=True)
    if problems:
        remedy = "Name the config of x-prepro in place of its data_dir."
        raise ConfigError(place, [Fault("data_dir", problems[0], remedy)])
    with io.open(io.join(place, CONFIG)) as file:
        found: dict[str, Any] = json.loads(file.read())
    return found


def tell_missing(missing: list[int], count: int) -> str:
    """Return a text that lists the missing shards, at most ten of them."""
    shown = ", ".join(map(str, missing[:10])) + (f", … ({len(missing)})" if len(missing) > 10 else "")
    return f"shard{'s' * (len(missing) != 1)} {shown} of {count}"


def planned_count(data_dir: str) -> int:
    """Return the number of tasks of a data_dir.

    Raises:
        ConfigError: no task has begun.
    """
    manifest = commit.read_manifest(place_of(data_dir), PLAN)
    if manifest is None:
        problem = f"there is no complete plan in {place_of(data_dir)}: no task of x-prepro has started."
        raise ConfigError(place_of(data_dir), [Fault("data_dir", problem, "Run x-prepro with num_shards first.")])
    found: int = manifest.facts["num_shards"]
    return found
