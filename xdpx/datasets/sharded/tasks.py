"""One task of a sharded x-prepro: count its part, wait for the counts of the other tasks, and make its pieces.

A task also counts the parts of tasks that have not begun or were killed, so that tasks may run all at once or one after
the other. The samples of a part are made only by its own task. The last task to finish makes the data_dir.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from xdpx.config.loading import Run
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.building import Builder
from xdpx.datasets.counting import RawCounts
from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.sample_making import Made, Work
from xdpx.datasets.sharded.counts import read_counts, write_counts
from xdpx.datasets.sharded.folder import COUNTS, MADE, ShardFolder, tell_missing
from xdpx.datasets.sharded.frames import write_made
from xdpx.datasets.sharded.gathering import gather
from xdpx.datasets.sharded.parameters import Shard, without_shards
from xdpx.datasets.sharded.parts import RawPart, parts_of
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Loader
from xdpx.logger import ProgressBar, log
from xdpx.tokenizers.base import Tokenizer
from xdpx.utils import commit, io
from xdpx.utils.leases import LeaseHeld

SECONDS_BETWEEN_LOOKS = 1.0


def run_task(run: Run, shard: Shard) -> None:
    """Do the work of one task; if it is the last to finish, make the data_dir.

    Args:
        run: of x-prepro.
        shard: this task.

    Raises:
        ConfigError: the raw files or the results of other tasks are not consistent with the config.
        LeaseHeld: the same task is already running.
        OSError: the disk, the network, or a worker process failed.
    """
    run = without_shards(run)
    folder = ShardFolder(run, shard.count)
    parameters = run.parameters("command")
    with log.early() as early:
        work = TaskWork(folder, shard)
        builder = Builder(run, parameters, early, work)
        builder.look()
        folder.enter({split: file.path for split, file in builder.files.items()})
        if folder.gathered() is None:
            if parameters.log_file is not None:
                early.open_file(io.join(folder.path, "logs", f"{folder.name('shard', shard.index)}.txt"))
            with folder.lease(folder.name("shard", shard.index)):
                _make_pieces(builder, work, folder, shard)
        _finish(folder, shard)


def _make_pieces(builder: Builder, work: TaskWork, folder: ShardFolder, shard: Shard) -> None:
    missing = [split for split in builder.files if not folder.is_made(split, shard.index)]
    for split in builder.files:
        if split not in missing:
            log.info(f"{shard}: {split} already exists, and is kept")
    if not missing:
        return
    place = io.join(folder.path, MADE)
    if io.islocal(place):
        commit.sweep(place)
    work.begin(builder.files)
    builder.prepare(with_vectors=False)
    try:
        for split in missing:
            _make_piece(builder, work.parts[split], split, folder, shard)
    finally:
        builder.end_work()


def _make_piece(builder: Builder, part: RawPart, split: str, folder: ShardFolder, shard: Shard) -> None:
    name, rows, samples, start = folder.name(split, shard.index), 0, 0, time.monotonic()
    facts = {**folder.piece_facts(split), "digests": builder.digests}
    piece = commit.Commit(io.join(folder.path, MADE), name, facts=facts)
    progress: ProgressBar[Any] = log.progress(what=f"{shard}: {split}", unit="rows")
    with piece, progress:
        with piece.open(f"{name}.blocks") as file:
            for made in builder.blocks_of(split, part):
                write_made(file, made)
                rows, samples = rows + made.counts.lines, samples + made.counts.samples
                progress.update(made.counts.lines)
        part.refuse_changes()
        piece.facts = {**facts, **part.facts()}
    log.info(f"{shard}: {rows:,} rows of {part.path} are done, {rows / (time.monotonic() - start):,.0f} rows/s")


def _finish(folder: ShardFolder, shard: Shard) -> None:
    """Make the data_dir if this was the last task; otherwise log which tasks are missing."""
    missing = folder.missing() if folder.gathered() is None else []
    if missing:
        log.info(f"{shard} is done. Still running, or to be run again: {tell_missing(missing, shard.count)}.")
        return
    try:
        gather(folder)
    except LeaseHeld as error:
        log.info(f"{shard} is done; another task combines all ({error.holder}).")


class TaskWork(BlockWork):
    """The block work of one task: counts are of all tasks, samples of this one's part.

    Args:
        folder: shared by the tasks.
        shard: the task.
    """

    def __init__(self, folder: ShardFolder, shard: Shard) -> None:
        self._folder, self._shard = folder, shard
        self._files: Mapping[str, RawFile] = {}
        self._passes = 0
        self.parts: dict[str, RawPart] = {}

    def begin(self, files: Mapping[str, RawFile]) -> None:
        """Set the parts of these raw files (by split) that this task processes, and log how they are split."""
        self._files = files
        self.parts = parts_of(files, self._shard)
        for split, part in self.parts.items():
            if part.mode == "file":
                told = "this task takes it" if part.taken else "another task takes it"
                log.info(f"{split}: {part.path} is not cut, {told}")
            elif part.mode == "blocks":
                log.info(
                    f"{split}: {part.path} can only be read from the beginning: every task reads it and does its share"
                )

    def count(
        self,
        files: Iterable[RawFile],
        loader: Loader,
        tokenizer: Tokenizer | None,
        *,
        workers: int,
        skip_bad_lines: bool,
        of_words: Collection[str] | None = None,
    ) -> RawCounts:
        """Count this task's part and the parts that no other task is counting; return the sum over all tasks."""
        paths = {file.path for file in files}
        self._passes += 1

        def count_one(index: int) -> None:
            parts = parts_of(self._files, Shard(index, self._shard.count)).values()
            mine = list({part.path: part for part in parts if part.path in paths}.values())
            seen = BlockWork.count(
                self, mine, loader, tokenizer, workers=workers, skip_bad_lines=skip_bad_lines, of_words=of_words
            )
            for part in mine:
                part.refuse_changes()
            write_counts(self._folder, self._passes, index, seen, mine)

        self._share_out(str(self._passes), count_one)
        return read_counts(self._folder, self._passes)

    def _share_out(self, what: str, do: Callable[[int], None]) -> None:
        """Call `do` for each task whose counts `what` are missing and not under way, until none are missing."""
        folder, (first, count) = self._folder, (self._shard.index, self._shard.count)
        order = [(first + step) % count for step in range(count)]
        told = False
        while missing := [index for index in order if folder.name(what, index) not in folder.done(COUNTS)]:
            if not any(self._took(index, what, do) for index in missing):
                if not told:
                    log.info(f"{self._shard}: waiting for the counts of {tell_missing(missing, count)}")
                told = True
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _took(self, index: int, what: str, do: Callable[[int], None]) -> bool:
        name = self._folder.name(what, index)
        try:
            with self._folder.lease(f"{COUNTS}-{name}", waits=False):
                if name not in self._folder.done(COUNTS):
                    do(index)
        except LeaseHeld:
            return False
        return True

    def made_of(
        self,
        split: str,
        file: RawFile,
        crew: Crew[Work, Made],
        *,
        digests: Mapping[str, str],
        skip_bad_lines: bool,
        hashed: bool,
        keyed: bool,
    ) -> Iterator[Made]:
        """Yield the samples of each block of this task's part."""
        return super().made_of(
            split, self.parts[split], crew, digests=digests, skip_bad_lines=skip_bad_lines, hashed=hashed, keyed=keyed
        )
