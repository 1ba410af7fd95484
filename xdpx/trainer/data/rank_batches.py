"""Assign samples to batches and ranks, round by round (see `rounds`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import copy
from itertools import chain, cycle, islice
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Sampler, SequentialSampler

from xdpx.engines.pytorch.collectives import broadcast_tensor_
from xdpx.trainer.data.randomness import Randomness
from xdpx.trainer.data.rounds import Fill, split_round
from xdpx.trainer.data.samplers import EpochSampler, Ordered

INDICES_AT_ONCE = 8192
"""Indices converted from a tensor to a list at a time."""


class _Drawn:
    """Context in which an order is drawn: records the random generators, or on a resume restores those recorded.

    Args:
        needed: whether the order depends on the global generators at all.
    """

    def __init__(self, *, needed: bool) -> None:
        self.needed = needed
        self.state: Mapping[str, Any] | None = None
        self._from: Randomness | None = None
        self._after: Randomness | None = None

    def __enter__(self) -> None:
        state, self.state, self._after = self.state, None, None
        if not self.needed:
            return
        now = Randomness.now()
        if state is not None and state.get("randomness") is not None:
            self._after, now = now, Randomness.loaded(state["randomness"])
            now.put_back()
        self._from = now

    def __exit__(self, *_: object) -> None:
        if self._after is not None:
            self._after.put_back()

    def state_dict(self) -> dict[str, Any]:
        return {"randomness": self._from.saved() if self._from is not None else None}


class Agreed(Sampler[int]):
    """The order drawn by the first rank, on all ranks, as their random generators may differ."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def order(self) -> Tensor:
        """Draw on all ranks, so that their generators advance alike; return what the first one drew."""
        order = self.sampler.order() if isinstance(self.sampler, Ordered) else torch.tensor(list(self.sampler))
        return broadcast_tensor_(order)


class RankBatches(Sampler[list[int]]):
    """Cuts the order of a sampler into batches, and yields those of one rank.

    Args:
        sampler: of indices. One with `order()` can start anywhere at once; of another, earlier indices are skipped.
        batch_size: samples of a batch on each rank.
        drop_last: drop an incomplete last round.
        rank: the rank whose batches to yield.
        size: number of ranks.
        fill: how the last round is completed. With one rank it stays incomplete.
        dealt: yield the batches of all ranks, round by round, for a `Dispatcher`.
    """

    def __init__(
        self,
        sampler: Any,
        batch_size: int,
        *,
        drop_last: bool = False,
        rank: int = 0,
        size: int = 1,
        fill: Fill = "all",
        dealt: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: is {batch_size}. A batch has at least one sample.")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        self.rank, self.num_processes = rank, size
        self.fill: Fill = fill if size > 1 else "none"
        self._given_ranks = range(size) if dealt else range(rank, rank + 1)
        self._start, self._drawn = 0, _Drawn(needed=not isinstance(sampler, EpochSampler | SequentialSampler))
        self._seed: int | None = None  # that the epoch of the next iteration began with, before the run was resumed
        self._seed_of_epoch: int | None = None

    @property
    def total_batch_size(self) -> int:
        """Samples of one batch on all ranks."""
        return self.batch_size * self.num_processes

    @property
    def even(self) -> bool:
        """Whether all ranks have equally many batches."""
        return self.num_processes == 1 or self.fill != "none"

    def __len__(self) -> int:
        samples = len(self.sampler)
        rounds, rest = divmod(samples, self.total_batch_size)
        if rest == 0 or self.drop_last:
            return rounds
        return rounds + (self.fill != "none" or rest > self.rank * self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch, in the order recorded by `state_dict`."""
        self._start, self._drawn.state, self._seed = batch_index, state, (state or {}).get("seed")

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to draw the order of this epoch again, also if the run is resumed with another seed."""
        return {**self._drawn.state_dict(), "seed": self._seed_of_epoch}

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start * self.total_batch_size, 0
        self._seed_of_epoch, self._seed = self._seed, None
        if self._seed_of_epoch is None:
            self._seed_of_epoch = self.sampler.initial_seed if isinstance(self.sampler, EpochSampler) else None
        with self._drawn:
            beginning, rounds = self._open(start)
        for round_ in rounds:
            if len(round_) < self.total_batch_size and self.drop_last:
                continue
            if self.num_processes == 1:
                yield round_
            else:
                share = math.ceil(len(round_) / self.num_processes) if self.fill == "even" else self.batch_size
                batches = split_round(round_, beginning, self.fill, share=share, size=self.num_processes)
                yield from (batches[rank] for rank in self._given_ranks if batches[rank])

    def _open(self, start: int) -> tuple[list[int], Iterator[list[int]]]:
        """Draw the order; return the samples of the first round, and an iterator over the rounds from a sample on."""
        total = self.total_batch_size
        if isinstance(self.sampler, Ordered):
            epoch = self.sampler if isinstance(self.sampler, EpochSampler) else None
            order = self.sampler.order() if epoch is None else epoch.order(self._seed_of_epoch)
            return order[:total].tolist(), self._cut(order, start)
        indices = iter(self.sampler)
        beginning = list(islice(indices, total))
        rounds = iter(lambda: list(islice(indices, total)), [])
        if start == 0:
            return beginning, chain([beginning] if beginning else [], rounds)
        next(islice(indices, start - total, start - total), None)
        return beginning, rounds

    def _cut(self, order: Tensor, start: int) -> Iterator[list[int]]:
        total = self.total_batch_size
        chunk = max(INDICES_AT_ONCE // total, 1) * total
        for at in range(start, len(order), chunk):
            indices = order[at : at + chunk].tolist()
            yield from (indices[index : index + total] for index in range(0, len(indices), total))


class RankBatchLists(Sampler[list[int]]):
    """Assigns the batches of a user's batch sampler to the ranks, one after another.

    Args:
        batch_sampler: yields lists of indices, of any size.
        rank: the rank whose batches to yield.
        size: number of ranks.
        even: complete the last round with batches from the start, so that all ranks have equally many. A short batch is
            filled up if the batch sampler has a `batch_size`.
        dealt: yield the batches of all ranks, round by round, for a `Dispatcher`.
    """

    def __init__(
        self, batch_sampler: Any, *, rank: int = 0, size: int = 1, even: bool = True, dealt: bool = False
    ) -> None:
        self.batch_sampler, self.rank, self.num_processes, self.even = batch_sampler, rank, size, even
        self._given_ranks = range(size) if dealt else range(rank, rank + 1)
        self.batch_size: int | None = getattr(batch_sampler, "batch_size", None)
        self.drop_last = bool(getattr(batch_sampler, "drop_last", False))
        self.sampler = getattr(batch_sampler, "sampler", None)
        self._start, self._drawn = 0, _Drawn(needed=True)

    @property
    def total_batch_size(self) -> int | None:
        """Samples of one batch on all ranks, None if batches differ in size."""
        return self.batch_size * self.num_processes if self.batch_size else None

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.batch_sampler), self.num_processes)
        if self.drop_last:
            return rounds
        return rounds + (rest > 0 if self.even else rest > self.rank)

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        for sampler in (self.batch_sampler, self.sampler):
            set_epoch = getattr(sampler, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch; samples of earlier ones are not read."""
        self._start, self._drawn.state = batch_index, state

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to draw the batches of this epoch again."""
        return self._drawn.state_dict()

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        with self._drawn:
            batches = iter(self.batch_sampler)
            beginning = list(islice(batches, self.num_processes))
        rounds = iter(lambda: list(islice(batches, self.num_processes)), [])
        for round_ in islice(chain([beginning] if beginning else [], rounds), start, None):
            given = [self._of(rank, round_, beginning) for rank in self._given_ranks]
            yield from (batch for batch in given if batch)

    def _of(self, rank: int, round_: list[list[int]], beginning: list[list[int]]) -> list[int]:
        """Return a rank's batch of a round, empty if it has none."""
        if self.num_processes == 1:
            return round_[0]
        if len(round_) < self.num_processes and self.drop_last:
            return []
        if not self.even:
            return round_[rank] if rank < len(round_) else []
        if self.batch_size is None:
            missing = islice(cycle(beginning), self.num_processes - len(round_))
            return [*round_, *missing][rank]
        return self._filled(rank, round_, beginning)

    def _filled(self, rank: int, round_: list[list[int]], beginning: list[list[int]]) -> list[int]:
        """Return a rank's batch, filled up from the start to `batch_size`; a longer batch is unchanged."""
        batches = [round_[place] if place < len(round_) else [] for place in range(rank + 1)]
        missing = [max((self.batch_size or 0) - len(batch), 0) for batch in batches]
        spare = cycle([index for batch in beginning for index in batch])
        taken = sum(missing[:rank])
        return [*batches[rank], *islice(spare, taken, taken + missing[rank])]


Batches = TypeVar("Batches")


def aside(batches: Batches) -> Batches:
    """Return the same batches for an iteration that is not resumed: the order recorded for a checkpoint stays."""
    other = copy(batches)
    if isinstance(other, RankBatches | RankBatchLists):
        other._start, other._drawn = 0, _Drawn(needed=other._drawn.needed)
    if isinstance(other, RankBatches):
        other._seed = None
    return other
