"""Data that can only be read from the start: which samples a rank keeps, and how a resumed run gets to its place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from itertools import cycle, islice
from typing import Any, Self

import torch
from torch.utils.data import IterableDataset

from xdpx.logger import log
from xdpx.utils.progress import Progress


class RankStream(IterableDataset[Any]):
    """The samples of one rank of a stream. Every rank reads all of it and keeps its batch of each round.

    A last, incomplete round is shared out evenly, with a few samples of the start where it does not divide.

    Args:
        source: the stream.
        batch_size: samples of a batch on each rank.
        rank: whose part this is.
        size: how many ranks there are.
        drop_last: leave out an incomplete last round.
        fills: complete the last round with samples of the start, until it divides by the number of ranks. Otherwise
            only a rank that would have nothing gets a sample.
    """

    def __init__(
        self, source: Any, batch_size: int, *, rank: int, size: int, drop_last: bool = False, fills: bool = True
    ) -> None:
        self.source, self.batch_size, self.rank, self.size = source, batch_size, rank, size
        self.drop_last, self.fills = drop_last, fills
        self.epoch = 0
        self.num_examples = 0
        self._rest: Any = None
        self._beginning: list[Any] = []

    @property
    def batches_of_round(self) -> int:
        """Batches given of each round."""
        return 1

    def entered(self, round_index: int, state: Any = None) -> Self:
        """Return the same from a round on; see `resumed`. The last round is filled up with the same samples."""
        rest = copy(self)
        if not self.drop_last:
            self._seed()
            rest._beginning = list(islice(self.source, self.size))
        rest._rest = resumed(self.source, round_index * self.round_size, state)
        return rest

    @property
    def round_size(self) -> int:
        """Samples that all ranks take at once."""
        return self.batch_size * self.size

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next, from 0."""
        self.epoch = epoch
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.source), self.round_size)
        share = math.ceil(rest / self.size)
        own = share if self.fills else min(max(rest - self.rank * share, 1), share)
        return rounds * self.batch_size + (0 if self.drop_last else own)

    def __iter__(self) -> Iterator[Any]:
        for batches in self._rounds():
            yield from batches[self.rank]

    def _rounds(self) -> Iterator[list[list[Any]]]:
        """Yield the batches of each round, by rank."""
        self.num_examples = 0
        self._seed()
        samples = iter(self.source if self._rest is None else self._rest)
        beginning = self._beginning
        while round_ := list(islice(samples, self.round_size)):
            self.num_examples += len(round_)
            beginning = beginning or round_[: self.size]
            if len(round_) == self.round_size or not self.drop_last:
                yield self._shared(round_, beginning)

    def _shared(self, round_: list[Any], beginning: list[Any]) -> list[list[Any]]:
        share = math.ceil(len(round_) / self.size)
        if self.fills:
            round_ = round_ + list(islice(cycle(beginning), -len(round_) % self.size))
        return [round_[rank * share : (rank + 1) * share] or beginning[:1] for rank in range(self.size)]

    def _seed(self) -> None:
        """Let a stream that shuffles with a generator of its own shuffle alike on all ranks."""
        generator = getattr(self.source, "generator", None)
        if isinstance(generator, torch.Generator) and not hasattr(self.source, "set_epoch"):
            generator.manual_seed(self.epoch)


class DealtStream(RankStream):
    """The batches of all ranks of a stream, as lists of samples: those of a round one after another, by rank."""

    @property
    def batches_of_round(self) -> int:
        """Batches given of each round."""
        return self.size

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.source), self.round_size)
        return (rounds + (rest > 0 and not self.drop_last)) * self.size

    def __iter__(self) -> Iterator[list[Any]]:
        for batches in self._rounds():
            yield from batches


class Skipping(IterableDataset[Any]):
    """A stream from some sample on. What comes before must be read; a bar shows how far that is."""

    def __init__(self, source: Any, skip: int) -> None:
        self.source, self.skip = source, skip

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self.source)
        pass_over(samples, self.skip, unit="samples")
        yield from samples


def pass_over(items: Iterator[Any], count: int, *, unit: str) -> None:
    """Read and leave out the first items, with a bar."""
    with Progress[Any](total=count, what="skipping to where the run stopped", unit=unit) as progress:
        for _ in islice(items, count):
            progress.update()


def is_stateful(source: object) -> bool:
    """Tell whether a stream can say where it stands, and be put there."""
    return callable(getattr(source, "state_dict", None)) and callable(getattr(source, "load_state_dict", None))


def resumed(source: Any, skip: int, state: Any = None) -> Any:
    """Return a stream that goes on after `skip` samples, by its own means where it has some.

    Args:
        source: the stream from its start.
        skip: samples already taken.
        state: what its `state_dict` said at that place.
    """
    if state is not None and is_stateful(source):
        source.load_state_dict(state)
        return source
    if callable(getattr(source, "skip", None)):
        return source.skip(skip)
    log.info(
        f"The training data is a stream ({type(source).__name__}) without state_dict or skip: {skip} samples are read "
        "again to get to where the run stopped. Set ignore_data_skip=True to begin anew with the data instead."
    )
    return Skipping(source, skip)


def shards_of(source: object) -> int:
    """Return how many shards a stream can be cut into (`datasets.IterableDataset`); 1 if it cannot."""
    count = getattr(source, "num_shards", getattr(source, "n_shards", 1))
    return count if isinstance(count, int) and callable(getattr(source, "shard", None)) else 1
