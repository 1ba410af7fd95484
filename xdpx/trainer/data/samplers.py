"""Order of the samples: random by epoch and seed alone, sequential, or grouped by length.

A sampler with `order()` returns a whole epoch at once, so that iteration can start at any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from xdpx.logger import log
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data.options import setting
from xdpx.trainer.data.plan import length
from xdpx.trainer.data.rebalance import BatchRebalance

MOST_BATCHES_SORTED_TOGETHER = 50
LEAST_SORTED_GROUPS = 4
"""Samples are sorted by length in groups of 50 batches, or of fewer if there would be less than four groups."""


@runtime_checkable
class Ordered(Protocol):
    """A sampler that can return its next epoch as a whole."""

    def order(self) -> Tensor:
        """Return the indices of the epoch, shape (samples,)."""


class EpochSampler(RandomSampler):
    """A random order that depends on seed and epoch alone, not on other random draws.

    Args:
        data: any sized object.
        seed: of the data. None: torch's initial seed, which is the `seed` of the arguments.
        replacement: draw with replacement.
        num_samples: samples of an epoch; None: the size of the data.
    """

    def __init__(
        self, data: Sized, *, seed: int | None = None, replacement: bool = False, num_samples: int | None = None
    ) -> None:
        super().__init__(data, replacement=replacement, num_samples=num_samples)
        self.initial_seed = torch.initial_seed() if seed is None else seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        self.epoch = epoch

    def order(self, seed: int | None = None) -> Tensor:
        """Return the indices of the epoch. `seed`: the one that the epoch began with; None: that of the sampler."""
        generator = torch.Generator().manual_seed((self.initial_seed if seed is None else seed) + self.epoch)
        total = len(self.data_source)
        if self.replacement:
            return _drawn(total, self.num_samples, generator)
        return _shuffled(total, self.num_samples, generator)

    def __iter__(self) -> Iterator[int]:
        yield from self.order().tolist()
        self.epoch += 1


def _shuffled(total: int, wanted: int, generator: torch.Generator) -> Tensor:
    rounds = [torch.randperm(total, generator=generator) for _ in range(wanted // total)]
    if rounds and wanted % total == 0:
        return rounds[0] if len(rounds) == 1 else torch.cat(rounds)
    return torch.cat([*rounds, torch.randperm(total, generator=generator)[: wanted % total]])


def _drawn(total: int, wanted: int, generator: torch.Generator) -> Tensor:
    """Draw with replacement, 32 at a time as torch does, since drawing all at once gives another sequence."""
    sizes = [32] * (wanted // 32) + [wanted % 32]
    return torch.cat([torch.randint(high=total, size=(size,), generator=generator) for size in sizes])


class LengthGrouped(Sampler[int]):
    """A random order in which samples of similar length are neighbours; the longest of all is first.

    Source: the order of `group_by_length` of the original, which is drawn from torch's global generator.

    Args:
        lengths: of the samples.
        batch_size: size of the groups of similar length; samples of one update on one process.
        generator: source of randomness; None: torch's global one.
    """

    def __init__(self, lengths: Sequence[int] | Tensor, batch_size: int, *, generator: Any = None) -> None:
        self.lengths = torch.as_tensor(lengths)
        self.batch_size, self.generator = batch_size, generator

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def order(self) -> Tensor:
        """Draw the indices of an epoch."""
        order = torch.randperm(len(self), generator=self.generator)
        batches = len(self) // (self.batch_size * LEAST_SORTED_GROUPS)
        groups = torch.split(order, max(min(batches, MOST_BATCHES_SORTED_TOGETHER), 1) * self.batch_size)
        # Stable, since samples of equal length must keep the order they were drawn in.
        ordered = [group[self.lengths[group].argsort(descending=True, stable=True)] for group in groups]
        longest = int(torch.stack([self.lengths[group[0]] for group in ordered]).argmax())
        first, other = ordered[0][0].clone(), ordered[longest][0].clone()
        ordered[0][0], ordered[longest][0] = other, first
        return torch.cat(ordered)


def lengths_of(dataset: Any, *, column: str | None = None, input_name: str | None = None) -> list[int]:
    """Return the length of each sample: from a column of lengths, else by counting the tokens of each sample.

    Args:
        dataset: of mappings.
        column: name of a column with lengths (`length_column_name`), used if the dataset has it, and for samples of a
            list if they have no main input.
        input_name: name of the model's main input; None: "input_ids".

    Raises:
        ValueError: the first sample has no such input, or one that has no length.
    """
    names = getattr(dataset, "column_names", None) or ()
    if column is not None and column in names:
        return [int(each) for each in dataset[column]]
    name = input_name or "input_ids"
    if name in names:
        return [len(each) for each in dataset[name]]
    # The first sample is read twice, as in the original: reading a sample may draw random numbers.
    first = dataset[0]
    if isinstance(first, Mapping) and hasattr(first.get(name), "__len__"):
        return [len(sample[name]) for sample in dataset]
    if isinstance(first, Mapping) and name not in first and column in first:
        return [int(sample[column]) for sample in dataset]
    found = f"has {', '.join(map(str, first))}" if isinstance(first, Mapping) else f"is a {type(first).__name__}"
    raise ValueError(
        f"train_sampling_strategy: sorts by length, but the first sample {found}, with no '{name}' to measure. "
        "Add a column with lengths and name it in length_column_name, or choose 'random'."
    )


def train_sampler(args: TrainingArguments, dataset: Any, *, input_name: str | None = None) -> Any:
    """Return the sampler of training samples for `train_sampling_strategy`.

    Returns:
        A sampler, a batch sampler for "batch_rebalance", or None for data without a length, which has its own order.
    """
    strategy = str(getattr(args.train_sampling_strategy, "value", args.train_sampling_strategy))
    if dataset is None or length(dataset) is None:
        if dataset is not None and strategy in {"group_by_length", "batch_rebalance"}:
            log.warning(
                f"`train_sampling_strategy='{strategy}'` is ignored because the training dataset does not implement "
                f"`__len__` ({type(dataset).__name__} is a stream). Examples will be consumed in the dataset's own "
                "order.",
                under="transformers.trainer",
            )
        return None
    if strategy == "sequential":
        return SequentialSampler(dataset)
    if strategy == "group_by_length":
        lengths = lengths_of(dataset, column=args.length_column_name, input_name=input_name)
        return LengthGrouped(lengths, args.train_batch_size * args.gradient_accumulation_steps)
    if strategy == "batch_rebalance":
        return _rebalance(args, lengths_of(dataset, column=args.length_column_name, input_name=input_name))
    if setting(args.accelerator_config, "use_seedable_sampler", default=True):
        return EpochSampler(dataset, seed=args.data_seed)
    return RandomSampler(dataset)


def eval_sampler(dataset: Any) -> Any:
    """Return the sampler for evaluation: the order of the data, also if training is by length. None without a length.

    The original of today sorts by length, too: metrics that look rows up in the data then compare the wrong ones.
    """
    return None if dataset is None or length(dataset) is None else SequentialSampler(dataset)


def _rebalance(args: TrainingArguments, lengths: list[int]) -> Any:
    world_size = max(1, args.world_size)
    return BatchRebalance(
        lengths,
        samples_per_update=args.train_batch_size * args.gradient_accumulation_steps * world_size,
        num_processes=world_size,
        accumulation=args.gradient_accumulation_steps,
        rank=args.process_index if world_size > 1 else 0,
        drop_last=args.dataloader_drop_last,
    )
