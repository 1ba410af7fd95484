"""Join the pieces of all tasks into the data_dir, with the code of a single process and the stored blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.building import build
from xdpx.datasets.counting import RawCounts
from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.sample_making import Made, Work
from xdpx.datasets.sharded.counts import read_counts, torn_error
from xdpx.datasets.sharded.folder import MADE, ShardFolder, tell_missing
from xdpx.datasets.sharded.frames import read_made
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Loader
from xdpx.logger import log
from xdpx.tokenizers.base import Tokenizer
from xdpx.utils import commit, io


def gather(folder: ShardFolder) -> dict[str, int]:
    """Make the data_dir of the pieces of all tasks, and remove them. Can be repeated after an interruption.

    Args:
        folder: shared by the tasks, and already entered.

    Returns:
        {split: number of samples} of the whole data_dir.

    Raises:
        ConfigError: a piece is missing, damaged, or of another config or raw file.
        LeaseHeld: another task is gathering.
    """
    with folder.lease("gather"):
        done = folder.gathered()
        if done is not None:
            log.info(f"{folder.path}: all shards were already combined")
            return done
        missing = folder.missing()
        if missing:
            problem = f"is missing: {tell_missing(missing, folder.count)}."
            remedy = "Run these tasks, or the whole array again: finished work is kept."
            raise ConfigError(folder.path, [Fault("shards", problem, remedy)])
        sizes = build(folder.run, GatheredWork(folder))
        folder.finish(sizes)
        return sizes


class GatheredWork(BlockWork):
    """Returns the stored counts and blocks of the tasks in place of processing the raw files."""

    def __init__(self, folder: ShardFolder) -> None:
        self._folder = folder
        self._passes = 0
        self._versions: dict[str, str] = {}
        self._told: set[str] = set()

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
        """Return the counts of all tasks for the next pass over the raw files."""
        del files, loader, tokenizer, workers, skip_bad_lines, of_words
        self._passes += 1
        return read_counts(self._folder, self._passes)

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
        """Return an iterator over the stored samples of each block of a raw file, in order.

        Raises:
            ConfigError: a piece is missing or damaged, or the pieces do not make up the file.
        """
        del crew, skip_bad_lines, hashed, keyed
        facts = [self._facts(split, index, digests) for index in range(self._folder.count)]
        mode = facts[0]["mode"]
        if any(each["mode"] != mode for each in facts):
            raise torn_error(self._folder, file.path)
        if mode == "blocks":
            return self._in_turn(split, file.path, facts)
        if mode == "bytes":
            borders = [0, *(each["span"][1] for each in facts)]
            starts = [each["span"][0] for each in facts]
            if starts != borders[:-1] or borders[-1] != io.size(file.path):
                raise torn_error(self._folder, file.path)
        before = accumulate((each.get("lines", 0) for each in facts[:-1]), initial=0)
        return (made for index, lines in enumerate(before) for made in self._made(split, index, lines))

    def _facts(self, split: str, index: int, digests: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the facts of a piece. Raises ConfigError if it is damaged or was made of something else."""
        folder, place = self._folder, io.join(self._folder.path, MADE)
        name, wanted = folder.name(split, index), {**folder.piece_facts(split), "digests": dict(digests)}
        troubles = commit.problems(place, name, hashes=True)
        manifest = commit.read_manifest(place, name)
        key = f"shard {index}"
        again = f"Run it again: num_shards={folder.count} shard_index={index}."
        if manifest is None or troubles:
            raise ConfigError(folder.path, [Fault(key, f"its piece of {split}: {' '.join(troubles)}", again)])
        wrong = [each for each, value in wanted.items() if manifest.facts.get(each) != value]
        if wrong:
            told = {"fingerprint": "config", "source": "raw file", "digests": "vocabulary or target map"}
            what = " and ".join(told.get(each, each) for each in wrong)
            problem = f"its piece of {split} was made with another {what}."
            raise ConfigError(folder.path, [Fault(key, problem, f"Remove {io.join(place, name)}.*. {again}")])
        for package, version in manifest.versions.items():
            first = self._versions.setdefault(package, version)
            if version != first and package not in self._told:
                self._told.add(package)
                log.warning(f"shards were made with different versions of {package}: {first} and {version}")
        return manifest.facts

    def _made(self, split: str, index: int, lines_before: int = 0) -> Iterator[Made]:
        name = self._folder.name(split, index)
        with io.open(io.join(self._folder.path, MADE, f"{name}.blocks"), "rb") as file:
            yield from read_made(file, lines_before=lines_before)

    def _in_turn(self, split: str, path: str, facts: Sequence[Mapping[str, Any]]) -> Iterator[Made]:
        """Yield a block of each task in turn, which is the order of the file."""
        if len({each["trace"] for each in facts}) > 1:
            raise torn_error(self._folder, path)
        pieces = [self._made(split, index) for index in range(self._folder.count)]
        for number in count():
            made = next(pieces[number % len(pieces)], None)
            if made is None:
                return
            yield made
