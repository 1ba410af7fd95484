"""Loaders for training and for scoring, made for one rank: data, order, options and world in; batches out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

from xdpx.dataloaders.dispatching import Dispatcher
from xdpx.dataloaders.options import LoaderOptions
from xdpx.dataloaders.randomness import seed_worker
from xdpx.dataloaders.rank_batches import Agreed, RankBatches, RankBatchLists
from xdpx.dataloaders.rank_loader import Collator, Loader, Ranks
from xdpx.dataloaders.rebalance import BatchRebalance
from xdpx.dataloaders.samplers import EpochSampler, LengthGrouped
from xdpx.dataloaders.streams import DealtStream, RankStream, shards_of


def train_loader(
    dataset: Any,
    *,
    collator: Collator | None,
    sampler: Any,
    options: LoaderOptions,
    world: Ranks,
    seed: int | None = None,
) -> Loader | Dispatcher:
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
    batches = rank_batches(dataset, sampler, options, world, seed)
    return loader_over(dataset, batches, collator=collator, options=options, world=world, worker_init=init)


def eval_loader(
    dataset: Any, *, collator: Collator | None, sampler: Any, options: LoaderOptions, world: Ranks
) -> Loader | Dispatcher:
    """Load data to evaluate or predict; for the arguments see `train_loader`."""
    if isinstance(dataset, IterableDataset):
        return _stream_loader(dataset, collator=collator, options=options, world=world, resumable=False)
    batches = rank_batches(dataset, sampler, options, world)
    return loader_over(dataset, batches, collator=collator, options=options, world=world, resumable=False)


def loader_over(
    dataset: Any,
    batches: Any,
    *,
    collator: Collator | None,
    options: LoaderOptions,
    world: Ranks,
    worker_init: Callable[[int], None] | None = None,
    resumable: bool = True,
) -> Loader | Dispatcher:
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
    return Dispatcher(loader, world) if deals else loader


def real_rows(loader: Any) -> int | None:
    """Give how many of the rows gathered from all ranks are no repetitions, None if all of them.

    Call it after the batch in question came from the loader: only the last round is filled up.
    """
    if not getattr(loader, "end_of_dataloader", False) or getattr(loader, "num_processes", 1) == 1:
        return None
    remainder: int = getattr(loader, "remainder", 0)
    return remainder if remainder > 0 else None


def seedable(sampler: Any, seed: int | None) -> Any:
    """Give the order of a plain random sampler as one of seed and epoch; any other sampler stays as it is."""
    if type(sampler) is not RandomSampler:
        return sampler
    return EpochSampler(
        sampler.data_source, seed=seed, replacement=sampler.replacement, num_samples=sampler._num_samples
    )


def rank_batches(dataset: Any, sampler: Any, options: LoaderOptions, world: Ranks, seed: int | None = None) -> Any:
    """Give the batch sampler of one rank for an order of samples, or for a user's batch sampler."""
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
        even=options.even_batches,
        dealt=_deals(options, world),
    )


class _Host(NamedTuple):
    """The same processes, with batches that stay on the host."""

    rank: int
    size: int
    device: torch.device = torch.device("cpu")


def _deals(options: LoaderOptions, world: Ranks) -> bool:
    """Whether the first rank reads for all of them."""
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
    dataset: Any, *, collator: Collator | None, options: LoaderOptions, world: Ranks, resumable: bool = True
) -> Loader | Dispatcher:
    if world.size > 1:
        size = _batch_size_of_rank(options, world)
        options = replace(options, batch_size=size)
        if options.dispatch_batches is False and shards_of(dataset) >= world.size:
            dataset = dataset.shard(num_shards=world.size, index=world.rank)
        else:
            kind = DealtStream if _deals(options, world) else RankStream
            dataset = kind(dataset, size, rank=world.rank, size=world.size, drop_last=options.drop_last)
    return loader_over(dataset, None, collator=collator, options=options, world=world, resumable=resumable)
