"""Data loaders of one rank for training and evaluation, from dataset, sampler, options and world."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from xdpx.trainer.data.dispatching import Dispatcher
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.plan import length
from xdpx.trainer.data.randomness import seed_worker
from xdpx.trainer.data.rank_batches import Agreed, RankBatches, RankBatchLists
from xdpx.trainer.data.rank_loader import Collator, Loader, Processes
from xdpx.trainer.data.rebalance import BatchRebalance
from xdpx.trainer.data.rounds import Fill
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped
from xdpx.trainer.data.streams import DealtStream, RankStream, shards_of

DRAWN = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler, LengthGrouped)
"""Samplers whose order is drawn from generators, which may differ between processes."""


def train_loader(
    dataset: object,
    *,
    collator: Collator | None,
    sampler: object,
    options: LoaderOptions,
    world: Processes,
    seed: int | None = None,
) -> DataLoader[Any]:
    """Return a loader of training data.

    Args:
        dataset: with a length and indices, or a stream (`IterableDataset`).
        collator: makes a batch of samples.
        sampler: order of the samples; a batch sampler that handles ranks itself, such as `BatchRebalance`, is used
            unchanged. None: sequential. Not used for streams.
        options: reading options; see `LoaderOptions.of`.
        world: the processes.
        seed: of a random order (`data_seed`); None: torch's initial seed.
    """
    if isinstance(dataset, IterableDataset):
        return _stream_loader(dataset, collator=collator, options=options, world=world)
    init = partial(seed_worker, num_workers=options.num_workers, rank=world.rank)
    batches = rank_batches(dataset, sampler, options, world, seed=seed)
    return loader_over(dataset, batches, collator=collator, options=options, world=world, worker_init=init)


def eval_loader(
    dataset: object, *, collator: Collator | None, sampler: object, options: LoaderOptions, world: Processes
) -> DataLoader[Any]:
    """Return a loader of data to evaluate or predict; for the arguments see `train_loader`.

    No sample is repeated, except for a rank that would have none in the last round, since all must have equally many
    batches. `own_rows` returns how many rows to keep.
    """
    if isinstance(dataset, IterableDataset):
        return _stream_loader(dataset, collator=collator, options=options, world=world, training=False)
    batches = rank_batches(dataset, sampler, options, world, fill="least")
    return loader_over(dataset, batches, collator=collator, options=options, world=world, resumable=False)


def loader_over(
    dataset: object,
    batches: object,
    *,
    collator: Collator | None,
    options: LoaderOptions,
    world: Processes,
    worker_init: Callable[[int], None] | None = None,
    resumable: bool = True,
) -> DataLoader[Any]:
    """Return a loader of the batches from `rank_batches`, or with None of those of a stream."""
    deals = _deals(options, world) and not isinstance(batches, BatchRebalance)
    loader = Loader(
        dataset,
        batches=batches,
        options=options,
        collator=collator,
        world=_Host(world.rank, world.size) if deals else world,
        worker_init=worker_init,
        resumable=resumable,
    )
    # A dispatcher forwards other attributes to its loader, so it can be used as one.
    return cast("DataLoader[Any]", Dispatcher(loader, world)) if deals else loader


def own_rows(loader: Any, rows: int) -> int:
    """Return how many of this rank's rows of a batch count, from its start; the rest only fills up the last round.

    Args:
        loader: the one that yielded the batch last.
        rows: of the batch.
    """
    size, rank = getattr(loader, "num_processes", 1), getattr(loader, "rank", 0)
    if size == 1 or not getattr(loader, "end_of_dataloader", False):
        return rows
    remainder = getattr(loader, "remainder", -1)
    if remainder <= 0:
        return rows
    share = math.ceil(remainder / size) if loader.is_stream else loader.total_batch_size // size
    return min(rows, max(remainder - rank * share, 0))


def seedable(sampler: object, seed: int | None) -> Any:
    """Return a plain random sampler as one that depends on seed and epoch only; any other sampler unchanged."""
    if type(sampler) is not RandomSampler:
        return sampler
    return EpochSampler(
        sampler.data_source, seed=seed, replacement=sampler.replacement, num_samples=sampler._num_samples
    )


def whole(sampler: Any) -> Any:
    """Return a sampler that gives each process its share as one of all samples, which are divided afterwards."""
    if not isinstance(sampler, DistributedSampler) or sampler.num_replicas == 1:
        return sampler
    of_all = copy(sampler)
    of_all.num_replicas, of_all.rank = 1, 0
    of_all.num_samples = of_all.total_size = len(sampler.dataset)  # type: ignore[arg-type]  # it has a length
    return of_all


def rank_batches(
    dataset: Any,
    sampler: Any,
    options: LoaderOptions,
    world: Processes,
    *,
    seed: int | None = None,
    fill: Fill | None = None,
) -> Any:
    """Return the batch sampler of one rank for a sampler, or for a user's batch sampler.

    Args:
        dataset: the data.
        sampler: order of its samples, or a batch sampler; None: sequential.
        options: reading options.
        world: the processes.
        seed: of a random order; None: torch's initial seed.
        fill: see `RankBatches`; None: by `even_batches`.
    """
    if isinstance(sampler, BatchRebalance | BatchSampler):
        return rank_lists(sampler, options, world)
    if sampler is None and length(dataset) is None:
        kind = type(dataset).__name__
        raise TypeError(
            f"data: a {kind} has no length, by which samples are drawn. Give it a __len__, override _get_train_sampler "
            "or _get_eval_sampler, or derive it from IterableDataset and give it an __iter__."
        )
    sampler = SequentialSampler(dataset) if sampler is None else whole(sampler)
    if options.seedable:
        sampler = seedable(sampler, seed)
    drawn = isinstance(sampler, DRAWN) and not isinstance(sampler, EpochSampler)
    if drawn and world.size > 1 and not _deals(options, world):
        sampler = Agreed(sampler)
    return RankBatches(
        sampler,
        _batch_size_of_rank(options, world),
        drop_last=options.drop_last,
        rank=world.rank,
        size=world.size,
        fill=fill or _fill(options, world),
        dealt=_deals(options, world),
    )


def rank_lists(batch_sampler: Any, options: LoaderOptions, world: Processes) -> Any:
    """Return the batch sampler of one rank for a user's, which may be any iterable of lists of indices."""
    if isinstance(batch_sampler, BatchRebalance):
        return batch_sampler
    return RankBatchLists(
        batch_sampler, rank=world.rank, size=world.size, even=options.even_batches, dealt=_deals(options, world)
    )


class _Host(NamedTuple):
    """The same processes, with the host as device."""

    rank: int
    size: int
    device: torch.device = torch.device("cpu")


def _deals(options: LoaderOptions, world: Processes) -> bool:
    """Return whether the first rank reads for all."""
    return options.dispatch_batches is True and world.size > 1


def _fill(options: LoaderOptions, world: Processes) -> Fill:
    """Return how the last round of a training is completed: as in the original, also where one rank reads for all."""
    if not options.even_batches:
        return "none"
    return "even" if _deals(options, world) else "all"


def _batch_size_of_rank(options: LoaderOptions, world: Processes) -> int:
    if not options.split_batches or world.size == 1:
        return options.batch_size
    if options.batch_size % world.size:
        raise ValueError(
            f"split_batches: a batch of {options.batch_size} samples cannot be divided by {world.size} processes. Make "
            "per_device_train_batch_size and per_device_eval_batch_size multiples of the number of processes, or leave "
            "split_batches out."
        )
    return options.batch_size // world.size


def _stream_loader(
    dataset: Any, *, collator: Collator | None, options: LoaderOptions, world: Processes, training: bool = True
) -> DataLoader[Any]:
    if not training:  # as in the original; how many rows are left out of a stream could not be told
        options = replace(options, drop_last=False)
    if world.size > 1:
        size = _batch_size_of_rank(options, world)
        options = replace(options, batch_size=size)
        # In an evaluation, shards of unequal size would leave one process waiting for the batches of another.
        if training and options.dispatch_batches is False and shards_of(dataset) >= world.size:
            dataset = dataset.shard(num_shards=world.size, index=world.rank)
        else:
            kind = DealtStream if _deals(options, world) else RankStream
            fill: Fill = "least"
            if training:  # the first rank reads streams for all in the original, unless that is switched off
                fill = "all" if options.dispatch_batches is False else "even"
            dataset = kind(dataset, size, rank=world.rank, size=world.size, drop_last=options.drop_last, fill=fill)
    return loader_over(dataset, None, collator=collator, options=options, world=world, resumable=training)
