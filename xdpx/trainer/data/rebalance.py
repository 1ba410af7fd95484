"""Micro-batches of different sizes but similar cost: small ones for long samples, large ones for short samples.

The samples of an update are sorted by length and cut into one run per micro-batch of each rank. Starting from runs of
equal size, single samples are moved from the most expensive run to the cheapest, until the spread stops shrinking.

Source: `train_sampling_strategy="batch_rebalance"` of the original; the batches are the same for the same lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler

QUADRATIC_SHARE = 0.001
"""Cost of attention per squared token, in units of the other cost per token."""

ROUNDS_PER_RUN = 30
ORDER_SEED = 42
"""Seed of this order in the original, whatever the seed of the run."""


def cost(samples: int, longest: int) -> float:
    """Return the cost of a padded batch: linear in its tokens, with a quadratic term in its length."""
    return samples * longest + QUADRATIC_SHARE * samples * longest * longest


class Runs:
    """Cuts a list of lengths, longest first, into runs of nearly equal cost.

    Args:
        lengths: sorted, longest first.
        num_runs: number of runs; at most the number of samples.
        per_slot: runs that are computed at the same time, one per rank.
    """

    def __init__(self, lengths: Sequence[int], num_runs: int, per_slot: int) -> None:
        self.lengths, self.num_runs, self.per_slot = lengths, num_runs, per_slot
        size, more = divmod(len(lengths), num_runs)
        self.counts = [size + (index < more) for index in range(num_runs)]
        self.frozen: set[int] = set()

    def balance(self, rounds: int) -> list[int]:
        """Return the number of samples of each run, after at most `rounds` moves."""
        best, best_spread = list(self.counts), float("inf")
        seen: set[tuple[int, ...]] = set()
        for _ in range(rounds):
            state = tuple(self.counts)
            active = [index for index in range(self.num_runs) if index not in self.frozen]
            if state in seen or len(active) <= 1:
                break
            seen.add(state)
            costs = self.costs()
            dearest, cheapest = max(active, key=costs.__getitem__), min(active, key=costs.__getitem__)
            spread = costs[dearest] - costs[cheapest]
            if spread < best_spread:
                best, best_spread = list(self.counts), spread
            if spread == 0:
                break
            self._improve(dearest, cheapest, costs)
        return best

    def costs(self) -> list[float]:
        """Return the current cost of each run."""
        costs, start = [], 0
        for count in self.counts:
            costs.append(cost(count, self.lengths[start]) if count else 0.0)
            start += count
        return costs

    def _improve(self, dearest: int, cheapest: int, costs: list[float]) -> None:
        if self.counts[dearest] > 1:
            self._move(dearest, cheapest)
            return
        # A run of one sample cannot be made smaller: its slot takes as long as that sample. The other runs of the slot
        # can be filled up to its cost for free, and then all of them are frozen.
        ranking = sorted(range(self.num_runs), key=costs.__getitem__, reverse=True)
        first = ranking.index(dearest) // self.per_slot * self.per_slot
        slot = set(ranking[first : first + self.per_slot])
        for run in slot:
            if run not in self.frozen and run != dearest:
                self._fill(run, slot, most=costs[dearest])
        self.frozen |= slot

    def _fill(self, run: int, slot: set[int], *, most: float) -> None:
        """Move samples of cheaper runs outside its slot into a run, as long as it costs no more than `most`."""
        outside = [index for index in range(self.num_runs) if index not in self.frozen and index not in slot]
        while donors := [index for index in outside if self.counts[index] > 1]:
            start = sum(self.counts[:run])
            longest = self.lengths[start] if self.counts[run] else 0
            if cost(self.counts[run] + 1, longest) > most:
                return
            costs = self.costs()
            self._move(min(donors, key=costs.__getitem__), run)

    def _move(self, donor: int, receiver: int) -> None:
        self.counts[donor] -= 1
        self.counts[receiver] += 1


class BatchRebalance(Sampler[list[int]]):
    """A batch sampler that yields each rank its micro-batches of each update; it must not be split again.

    Args:
        lengths: of all samples, in tokens.
        samples_per_update: samples of one update over all ranks and accumulated batches.
        num_processes: number of ranks.
        accumulation: batches of one update on each rank.
        rank: the rank whose batches to yield.
        drop_last: drop the samples that do not fill the last update.
    """

    batch_size = None
    """None, as it differs between batches."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        samples_per_update: int,
        num_processes: int = 1,
        accumulation: int = 1,
        rank: int = 0,
        drop_last: bool = True,
    ) -> None:
        self.num_runs = num_processes * accumulation
        if samples_per_update < self.num_runs:
            raise ValueError(
                f"batch_rebalance: {samples_per_update} samples per update are too few for {accumulation} batches on "
                f"each of {num_processes} process(es). Raise per_device_train_batch_size."
            )
        self.lengths, self.samples_per_update = list(lengths), samples_per_update
        self.num_processes, self.accumulation, self.rank = num_processes, accumulation, rank
        self.drop_last = drop_last
        self.epoch = 0
        self._start = 0

    @property
    def total_batch_size(self) -> float:
        """Samples of one batch on all ranks, on average."""
        return self.samples_per_update / self.accumulation

    @property
    def num_updates(self) -> int:
        """Updates in an epoch."""
        full, rest = divmod(len(self.lengths), self.samples_per_update)
        return full + (rest > 0 and not self.drop_last)

    def __len__(self) -> int:
        return self.num_updates * self.accumulation

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        self.epoch = epoch

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch."""
        del state
        self._start = batch_index

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: the order depends on the epoch alone."""
        return {}

    def __iter__(self) -> Iterator[list[int]]:
        update, batch = divmod(self._start, self.accumulation)
        self._start = 0
        order = torch.randperm(len(self.lengths), generator=torch.Generator().manual_seed(ORDER_SEED + self.epoch))
        indices = order.tolist()
        for index in range(update, self.num_updates):
            yield from self._batches(self._samples(indices, index))[batch:]
            batch = 0

    def _samples(self, order: list[int], update: int) -> list[int]:
        """Return the samples of an update; the last one is filled up to at least one sample per micro-batch."""
        start = update * self.samples_per_update
        samples = order[start : start + self.samples_per_update]
        missing = self.num_runs - len(samples)
        return samples + [order[index % len(order)] for index in range(missing)]

    def _batches(self, samples: list[int]) -> list[list[int]]:
        """Cut the samples of an update; return the micro-batches of this rank, most expensive first."""
        samples = sorted(samples, key=self.lengths.__getitem__, reverse=True)
        lengths = [self.lengths[index] for index in samples]
        runs = Runs(lengths, self.num_runs, self.num_processes)
        runs.counts = runs.balance(max(self.num_runs * ROUNDS_PER_RUN, self.samples_per_update))
        costs = runs.costs()
        ranking = sorted(range(self.num_runs), key=costs.__getitem__, reverse=True)
        starts = [sum(runs.counts[:index]) for index in range(self.num_runs)]
        mine = ranking[self.rank :: self.num_processes]
        return [samples[starts[run] : starts[run] + runs.counts[run]] for run in mine]
