"""Data that can only be read from the start: the part of each rank, and how to seek when resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from xdpx.logger import log
from xdpx.trainer.data.first_rows import digest
from xdpx.trainer.data.randomness import untouched
from xdpx.trainer.data.rounds import Fill, split_round
from xdpx.utils.progress import ProgressBar


class RankStream(IterableDataset[Any]):
    """The samples of one rank of a stream. Every rank reads all of it and keeps its batch of each round.

    Args:
        source: the stream.
        batch_size: samples of a batch on each rank.
        rank: the rank of this part.
        size: number of ranks.
        drop_last: drop an incomplete last round.
        fill: how the last round is completed: "all", "even", or "least", by which it is split evenly, too.

    Attributes:
        first_read: digest of the first round that was read since it was set to 0; shape (1,). In shared memory, the
            first worker process sets it.
    """

    def __init__(
        self, source: Any, batch_size: int, *, rank: int, size: int, drop_last: bool = False, fill: Fill = "even"
    ) -> None:
        self.source, self.batch_size, self.rank, self.size = source, batch_size, rank, size
        self.drop_last, self.fill = drop_last, fill
        self.epoch = 0
        self.num_examples = 0
        self.first_read = torch.zeros(1, dtype=torch.int64)
        self._rest: Any = None
        self._beginning: list[Any] = []

    @property
    def batches_of_round(self) -> int:
        """Number of batches yielded per round."""
        return 1

    def entered(self, round_index: int, state: Any = None) -> Self:
        """Return a copy that starts at a round; see `resumed`. Its last round is filled up with the same samples."""
        rest = copy(self)
        if not self.drop_last:
            with untouched():
                self._seed()
                rest._beginning = list(islice(self.source, self.round_size))
        self._seed()
        rest._rest = iter(resumed(self.source, round_index * self.round_size, state))
        return rest

    @property
    def round_size(self) -> int:
        """Samples of one batch on all ranks."""
        return self.batch_size * self.size

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        self.epoch = epoch
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.source), self.round_size)
        share = self._share(rest)
        own = share if self.fill != "least" else min(max(rest - self.rank * share, 1), share)
        return rounds * self.batch_size + (0 if self.drop_last else own)

    def __iter__(self) -> Iterator[Any]:
        for batches in self._rounds():
            yield from batches[self.rank]

    def _rounds(self) -> Iterator[list[list[Any]]]:
        """Yield the batches of each round, by rank."""
        self.num_examples = 0
        if self._rest is None:
            self._seed()
        samples = iter(self.source if self._rest is None else self._rest)
        beginning, worker = self._beginning, get_worker_info()
        while round_ := list(islice(samples, self.round_size)):
            if not self.num_examples and (worker is None or worker.id == 0):
                self.first_read[0] = digest(round_)
            self.num_examples += len(round_)
            beginning = beginning or round_
            if len(round_) == self.round_size or not self.drop_last:
                yield split_round(round_, beginning, self.fill, share=self._share(len(round_)), size=self.size)

    def _share(self, samples: int) -> int:
        """Return the samples of a batch of a round of so many samples."""
        return self.batch_size if self.fill == "all" and samples else math.ceil(samples / self.size)

    def _seed(self) -> None:
        """Seed a stream that shuffles with its own generator, so that all ranks shuffle alike."""
        generator = getattr(self.source, "generator", None)
        if isinstance(generator, torch.Generator) and not hasattr(self.source, "set_epoch"):
            generator.manual_seed(self.epoch)


class DealtStream(RankStream):
    """The batches of all ranks of a stream, as lists of samples: round by round, by rank."""

    @property
    def batches_of_round(self) -> int:
        """Number of batches yielded per round."""
        return self.size

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.source), self.round_size)
        return (rounds + (rest > 0 and not self.drop_last)) * self.size

    def __iter__(self) -> Iterator[list[Any]]:
        for batches in self._rounds():
            yield from batches


class Skipping(IterableDataset[Any]):
    """A stream from some sample on. Earlier samples are read when iteration begins; a progress bar is shown."""

    def __init__(self, source: Any, skip: int) -> None:
        self.source, self.skip = source, skip

    def __iter__(self) -> Iterator[Any]:
        samples: Iterator[Any] = iter(self.source)
        pass_over(samples, self.skip, unit="samples")
        return samples


def pass_over(items: Iterator[Any], count: int, *, unit: str) -> None:
    """Read and discard the first items, with a progress bar."""
    with ProgressBar[Any](total=count, what="skipping to where the run stopped", unit=unit) as progress:
        for _ in islice(items, count):
            progress.update()


def is_stateful(source: object) -> bool:
    """Return whether a stream can save and restore its position."""
    return callable(getattr(source, "state_dict", None)) and callable(getattr(source, "load_state_dict", None))


def resumed(source: Any, skip: int, state: Any = None) -> Any:
    """Return a stream without its first `skip` samples, by its own methods if it has any.

    Args:
        source: the stream from its start.
        skip: samples already taken.
        state: its `state_dict` at that position.
    """
    if state is not None and is_stateful(source) and not _shuffles_in_a_buffer(source):
        source.load_state_dict(state)
        return source
    if callable(getattr(source, "skip", None)):
        return source.skip(skip)
    log.info(
        f"The training data is a stream ({type(source).__name__}) without state_dict or skip: {skip} samples are read "
        "again to get to where the run stopped. Set ignore_data_skip=True to start over with the data instead."
    )
    return Skipping(source, skip)


def _shuffles_in_a_buffer(source: object) -> bool:
    """Return whether a stream of `datasets` has a shuffle buffer: its state leaves the samples in there out."""
    return any(type(part).__name__ == "BufferShuffledExamplesIterable" for part in _parts(source))


def shufflings(source: object) -> list[Any]:
    """Return the states of the generators by which a stream of `datasets` is shuffled; of another, none."""
    generators = [getattr(part, "generator", None) for part in _parts(source)]
    return [each.bit_generator.state for each in generators if isinstance(each, np.random.Generator)]


def _parts(source: object) -> Iterator[Any]:
    """Yield the steps by which a stream of `datasets` makes its samples, from the last one on."""
    left = [getattr(source, "_ex_iterable", None)]
    while left:
        part = left.pop()
        inner = [getattr(part, "ex_iterable", None), *(getattr(part, "ex_iterables", None) or ())]
        left += [each for each in inner if each is not None]
        yield part


def shards_of(source: object) -> int:
    """Return the number of shards of a stream (`datasets.IterableDataset`); 1 if it has none."""
    count = getattr(source, "num_shards", getattr(source, "n_shards", 1))
    return count if isinstance(count, int) and callable(getattr(source, "shard", None)) else 1
