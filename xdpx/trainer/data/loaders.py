"""Loaders for training and for scoring, made for one rank: data, order, options and world in; batches out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from xdpx.trainer.data.dispatching import Dispatcher
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.randomness import seed_worker
from xdpx.trainer.data.rank_batches import Agreed, Fill, RankBatches, RankBatchLists
from xdpx.trainer.data.rank_loader import Collator, Loader, Ranks
from xdpx.trainer.data.rebalance import BatchRebalance
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped
from xdpx.trainer.data.streams import DealtStream, RankStream, shards_of


def train_loader(
    dataset: object,
    *,
    collator: Collator | None,
    sampler: object,
    options: LoaderOptions,
    world: Ranks,
    seed: int | None = None,
) -> DataLoader[Any]:
    """Load training data.

    Args:
        dataset: with a length and indices, or a stream (`IterableDataset`).
        collator: makes a batch of samples.
        sampler: order of the samples; a batch sampler that deals with ranks itself, such as `BatchRebalance`, is taken
            as it is. None: as they stand. Not used for streams.
        options: how to read; see `LoaderOptions.of`.
        world: who takes part.
        seed: of a random order (`data_seed`); None: what torch was seeded with.
    """
    if isinstance(dataset, IterableDataset):
        return _stream_loader(dataset, collator=collator, options=options, world=world)
    init = partial(seed_worker, num_workers=options.num_workers, rank=world.rank)
    batches = rank_batches(dataset, sampler, options, world, seed=seed)
    return loader_over(dataset, batches, collator=collator, options=options, world=world, worker_init=init)


def eval_loader(
    dataset: object, *, collator: Collator | None, sampler: object, options: LoaderOptions, world: Ranks
) -> DataLoader[Any]:
    """Load data to evaluate or predict; for the arguments see `train_loader`.

    No sample is repeated, but for a rank that has nothing in the last round: all must have as many batches. `own_rows`
    knows which those are.
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
    world: Ranks,
    worker_init: Callable[[int], None] | None = None,
    resumable: bool = True,
) -> DataLoader[Any]:
    """Load the batches that `rank_batches` gives, or, with None, those of a stream."""
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
    # A dispatcher hands on what it is asked to its loader, so it is used as one.
    return cast("DataLoader[Any]", Dispatcher(loader, world)) if deals else loader


def own_rows(loader: Any, rows: int) -> int:
    """Return how many of this rank's rows of a batch count, from its start; the others only fill up the last round.

    Args:
        loader: the batch came from it last.
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
    """Return the order of a plain random sampler as one of seed and epoch; any other sampler stays as it is."""
    if type(sampler) is not RandomSampler:
        return sampler
    return EpochSampler(
        sampler.data_source, seed=seed, replacement=sampler.replacement, num_samples=sampler._num_samples
    )


def rank_batches(
    dataset: Any,
    sampler: Any,
    options: LoaderOptions,
    world: Ranks,
    *,
    seed: int | None = None,
    fill: Fill | None = None,
) -> Any:
    """Return the batch sampler of one rank for an order of samples, or for a user's batch sampler.

    Args:
        dataset: what is read.
        sampler: order of its samples, or a batch sampler; None: as they stand.
        options: how to read.
        world: who takes part.
        seed: of a random order; None: what torch was seeded with.
        fill: see `RankBatches`; None: as `even_batches` says.
    """
    if isinstance(sampler, BatchRebalance):
        return sampler
    if isinstance(sampler, BatchSampler):
        return RankBatchLists(
            sampler, rank=world.rank, size=world.size, even=options.even_batches, dealt=_deals(options, world)
        )
    sampler = SequentialSampler(dataset) if sampler is None else sampler
    if options.seedable:
        sampler = seedable(sampler, seed)
    drawn = isinstance(sampler, RandomSampler | LengthGrouped) and not isinstance(sampler, EpochSampler)
    if drawn and world.size > 1 and not _deals(options, world):
        sampler = Agreed(sampler)
    return RankBatches(
        sampler,
        _batch_size_of_rank(options, world),
        drop_last=options.drop_last,
        rank=world.rank,
        size=world.size,
        fill=fill or ("all" if options.even_batches else "none"),
        dealt=_deals(options, world),
    )


class _Host(NamedTuple):
    """The same processes, with batches that stay on the host."""

    rank: int
    size: int
    device: torch.device = torch.device("cpu")


def _deals(options: LoaderOptions, world: Ranks) -> bool:
    """Tell whether the first rank reads for all of them."""
    return options.dispatch_batches is True and world.size > 1


def _batch_size_of_rank(options: LoaderOptions, world: Ranks) -> int:
    if not options.split_batches or world.size == 1:
        return options.batch_size
    if options.batch_size % world.size:
        raise ValueError(
            f"split_batches: a batch of {options.batch_size} samples does not divide by {world.size} processes. Make "
            "per_device_train_batch_size and per_device_eval_batch_size multiples of the number of processes, or leave "
            "split_batches out."
        )
    return options.batch_size // world.size


def _stream_loader(
    dataset: Any, *, collator: Collator | None, options: LoaderOptions, world: Ranks, training: bool = True
) -> DataLoader[Any]:
    if world.size > 1:
        size = _batch_size_of_rank(options, world)
        options = replace(options, batch_size=size)
        if options.dispatch_batches is False and shards_of(dataset) >= world.size:
            dataset = dataset.shard(num_shards=world.size, index=world.rank)
        else:
            kind = DealtStream if _deals(options, world) else RankStream
            dataset = kind(dataset, size, rank=world.rank, size=world.size, drop_last=options.drop_last, fills=training)
    return loader_over(dataset, None, collator=collator, options=options, world=world, resumable=training)
