"""Length of a training: examples, batches and updates per epoch, epochs, and the position to resume from."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xdpx.datasets.plan import Position
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data.streams import RankStream

FOR_EVER = sys.maxsize
"""Number of epochs of data without a length, which `max_steps` ends."""


@dataclass(frozen=True)
class TrainingPlan:
    """The counts of a training. A step is an update of the weights; a batch is that of one rank.

    Attributes:
        num_epochs: number of epochs; the last may be incomplete.
        steps_per_epoch: updates of one epoch, at least 1.
        num_examples: samples of the training data.
        num_train_samples: samples seen by the end, over all ranks; a float for a fraction of an epoch.
        total_batch_size: samples of one update, over all ranks and accumulated batches.
        batches_per_epoch: batches of each rank in an epoch.
        max_steps: updates of the training.
        accumulation: batches of one update.
        samples_per_batch: samples of one batch on all ranks, if the loader knows.
        offset: of a resumed run, the steps taken at some place in the data, less those that this plan takes to it: not
            0 after batches, or data, of another size.
    """

    num_epochs: int
    steps_per_epoch: int
    num_examples: int
    num_train_samples: float
    total_batch_size: int
    batches_per_epoch: int
    max_steps: int
    accumulation: int = 1
    samples_per_batch: int | None = None
    offset: int = 0

    def as_tuple(self) -> tuple[int, int, int, float, int, int, int]:
        """Return the seven numbers in the order of `Trainer.set_initial_training_values`."""
        return (
            self.num_epochs, self.steps_per_epoch, self.num_examples, self.num_train_samples, self.total_batch_size,
            self.batches_per_epoch, self.max_steps,
        )  # fmt: skip

    def position(self, global_step: int, data: Mapping[str, Any] | None = None) -> Position:
        """Return the position in the data after `global_step` updates.

        Args:
            global_step: updates done.
            data: `state_dict` of the loader at that step. It counts samples, so the position is also right for another
                batch size or number of ranks; without it, steps are counted as if nothing had changed.
        """
        epoch, steps = divmod(global_step - self.offset, self.steps_per_epoch)
        if data is None:
            return self._after(epoch, steps * self.accumulation)
        if data.get("samples") is not None and self.samples_per_batch:
            batches = math.ceil(data["samples"] / self.samples_per_batch)
        else:
            batches = data.get("batches", steps * self.accumulation)
        ended = data["ended"] or self._is_whole(batches)
        return self._after(data["epoch"] + 1, 0) if ended else self._after(data["epoch"], batches)

    def carried_over(self, saved: Position, samples_per_batch: int | None) -> Position:
        """Return the position in the data for one saved with another plan.

        Args:
            saved: the position.
            samples_per_batch: that of the other plan, over all ranks, if known.
        """
        batches = saved.batches
        if samples_per_batch and self.samples_per_batch:
            batches = math.ceil(batches * samples_per_batch / self.samples_per_batch)
        ended = self._is_whole(batches)
        return self._after(saved.epoch, 0) if ended else self._after(saved.epoch - 1, batches)

    def _is_whole(self, batches: int) -> bool:
        """Return whether an epoch has no more batches than these; where a stream ends is not known beforehand."""
        return self.num_epochs != FOR_EVER and batches >= self.batches_per_epoch

    def prolonged(self, place: Position, global_step: int) -> TrainingPlan:
        """Return the plan of a stream that is resumed at a place: all steps that are left read on from there."""
        left = self.max_steps - global_step
        batches = max(self.batches_per_epoch, place.batches + left * self.accumulation)
        return replace(self, batches_per_epoch=batches, steps_per_epoch=max(self.steps_per_epoch, place.group + left))

    def shifted(self, offset: int, max_steps: int) -> TrainingPlan:
        """Return the plan of a resumed run with this `offset`, which ends where the run was meant to end.

        Args:
            offset: see the attribute.
            max_steps: the number of steps that was asked for; if it is not positive, the number of epochs counts.
        """
        if max_steps <= 0:
            return replace(self, max_steps=self.max_steps + offset, offset=offset)
        epochs = math.ceil((self.max_steps - offset) / self.steps_per_epoch) if offset else self.num_epochs
        return replace(self, num_epochs=epochs, offset=offset)

    def steps_to(self, place: Position) -> int:
        """Return the number of steps that this plan takes to a position in the data."""
        return (place.epoch - 1) * self.steps_per_epoch + place.group

    def _after(self, epoch: int, batches: int) -> Position:
        """Return the position in an epoch, counted from 0, after some batches of each rank."""
        left = -(-(self.batches_per_epoch - batches) // self.accumulation)
        return Position(epoch + 1, self.steps_per_epoch - left, batches)


def plan_training(args: TrainingArguments, loader: object, *, batch_size: int, num_processes: int = 1) -> TrainingPlan:
    """Return the plan of a training.

    Args:
        args: `max_steps`, `num_train_epochs`, `gradient_accumulation_steps`, `per_device_train_batch_size`.
        loader: of the training data, with or without a length.
        batch_size: samples of one batch of one process.
        num_processes: the number of processes that share the data.

    Raises:
        ValueError: the data has no length and there is no `max_steps`; or it has no batch.
    """
    accumulation, at_once = args.gradient_accumulation_steps, samples_per_batch(loader)
    total = batch_size * accumulation * num_processes
    batches = length(loader)
    if batches is None:
        if args.max_steps <= 0:
            raise ValueError(
                f"max_steps: is {args.max_steps}, but the training data has no length, so epochs cannot be counted. "
                "Set max_steps to the number of updates to train for, or give the dataset a __len__."
            )
        steps, samples = args.max_steps, total * args.max_steps
        return TrainingPlan(
            FOR_EVER, steps, samples, samples, total, steps * accumulation, steps, accumulation, at_once
        )
    if batches == 0:
        raise ValueError(_no_batch(loader, batch_size, num_processes))
    steps = max(math.ceil(batches / accumulation), 1)
    examples = num_examples(loader, args.per_device_train_batch_size)
    seen: float
    if args.max_steps > 0:
        epochs, seen, max_steps = math.ceil(args.max_steps / steps), args.max_steps * total, args.max_steps
    else:
        epochs, seen = math.ceil(args.num_train_epochs), examples * args.num_train_epochs
        max_steps = math.ceil(args.num_train_epochs * steps)
    return TrainingPlan(epochs, steps, examples, seen, total, batches, max_steps, accumulation, at_once)


def samples_per_batch(loader: object) -> int | None:
    """Return the number of samples of one batch on all ranks, None if the loader does not know it or it varies."""
    total = getattr(loader, "total_batch_size", None)
    return int(total) if total and total == int(total) else None


def num_examples(loader: Any, batch_size: int) -> int:
    """Return the number of samples of a loader's dataset; without a length, an estimate from the number of batches."""
    examples = known_samples(loader)
    return examples if examples is not None else len(loader) * batch_size


def known_samples(loader: object) -> int | None:
    """Return the number of samples of a loader's dataset on all ranks, None if it has no length."""
    dataset = getattr(loader, "dataset", None)
    return length(dataset.source if isinstance(dataset, RankStream) else dataset)


def length(thing: Any) -> int | None:
    """Return `len(thing)`, None if it has none."""
    try:
        return len(thing)
    except (TypeError, AttributeError, NotImplementedError):
        # Ray datasets raise an AttributeError, sampler-like classes of users NotImplementedError.
        return None


def _no_batch(loader: object, batch_size: int, num_processes: int) -> str:
    examples = length(getattr(loader, "dataset", None))
    return (
        f"train_dataset: yields no batch. It has {examples} samples; {num_processes} process(es) with batches of "
        f"{batch_size} samples leave nothing when incomplete batches are dropped. Add data, lower "
        "per_device_train_batch_size, or set dataloader_drop_last=False."
    )
