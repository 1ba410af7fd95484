"""Epoch plans: which samples form which group of an epoch, a pure function that can be looked up at any position.

An epoch is divided into groups, one per update: `group_size` batches of `batch_size` samples over all ranks. The order
is a keyed permutation, computed when needed, so a plan for a billion samples is made as fast as one for ten, and
resuming at any group is as fast as starting at the first one.

With `by_length`, samples are sorted by length within windows of many groups: all samples of a group, on all ranks and
in all its micro-batches, have similar lengths, which reduces padding. The groups of a window are then shuffled. The
content of a group does not depend on the number of ranks; each takes its slice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.processors.randomness import Words, key, permute

GROUPS_PER_WINDOW = 512
SAMPLE_ORDER, GROUP_ORDER = 1, 2
"""Purposes of random keys, so that different orders of the same epoch are independent."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Position:
    """A position in the training data, from which training resumes; the same for all doors.

    Attributes:
        epoch: from 1; with `lazy_load`, each shard counts as one.
        group: number of groups of the epoch that are finished.
        batches: micro-batches of the epoch that each process has finished, if the last group may have fewer.
    """

    epoch: int = 1
    group: int = 0
    batches: int = 0


BEGINNING = Position()


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The groups of one epoch, as rows of a store. Made by `plan_epoch`.

    Attributes:
        size: number of samples to choose from.
        lengths: of the samples, shape (size,), if groups are formed by length; else None.
        batch_size: number of samples of a micro-batch over all ranks.
        group_size: number of micro-batches of a group.
        world_size: number of ranks.
        rank: whose slice `group` returns, from 0.
        sample_key: random key of the order of samples.
        group_key: random key of the order of groups in a window.
    """

    size: int
    lengths: NDArray[np.integer[Any]] | None
    batch_size: int
    group_size: int
    world_size: int
    rank: int
    sample_key: Words
    group_key: Words
    _window: dict[int, Rows] = field(default_factory=dict, repr=False)

    @property
    def num_groups(self) -> int:
        """Number of groups; samples that do not fill the last one are dropped, different ones in each epoch."""
        return self.size // self._samples_per_group

    def group(self, index: int) -> list[Rows]:
        """Return this rank's slice of the rows of each micro-batch of a group.

        Raises:
            IndexError: there is no such group.
        """
        if not 0 <= index < self.num_groups:
            raise IndexError(f"There is no group {index} in an epoch of {self.num_groups}.")
        window, place = divmod(index, GROUPS_PER_WINDOW)
        batches = self._groups_of(window)[place]
        return [self._share(batch) for batch in batches]

    @property
    def _samples_per_group(self) -> int:
        return self.batch_size * self.group_size

    def _groups_of(self, window: int) -> Rows:
        """Return the groups of a window, shape (groups, group_size, batch_size). The last window is cached."""
        if window not in self._window:
            rows = self._make_window(window)
            self._window.clear()
            self._window[window] = rows
        return self._window[window]

    def _share(self, batch: Rows) -> Rows:
        """Return this rank's part of a batch."""
        return batch[self.rank :: self.world_size]

    def _rows(self, places: Rows) -> Rows:
        """Return the row at each position of the epoch."""
        return permute(places, self.size, self.sample_key)

    def _make_window(self, window: int) -> Rows:
        first = window * GROUPS_PER_WINDOW
        count = min(GROUPS_PER_WINDOW, self.num_groups - first)
        places = np.arange(first * self._samples_per_group, (first + count) * self._samples_per_group)
        rows = self._rows(places)
        shape = (count, self.group_size, self.batch_size)
        if self.lengths is None:
            return rows.reshape(shape)
        # A stable sort keeps equal lengths in their shuffled order, so that their neighbours change in each epoch.
        rows = rows[np.argsort(self.lengths[rows], kind="stable")]
        return rows.reshape(shape)[permute(np.arange(count), count, self.group_key ^ np.uint64(window))]


def plan_epoch(
    samples: NDArray[np.integer[Any]] | int,
    *,
    seed: int,
    epoch: int,
    batch_size: int,
    group_size: int = 1,
    by_length: bool = False,
    world_size: int = 1,
    rank: int = 0,
) -> EpochPlan:
    """Return the plan of one epoch.

    Args:
        samples: length of each sample in tokens; without `by_length`, their number is enough.
        seed: of the run.
        epoch: from 1; each has another order.
        batch_size: number of samples of a micro-batch, over all ranks.
        group_size: number of micro-batches per update (`update_freq`).
        by_length: form groups of samples of similar length.
        world_size: number of ranks.
        rank: whose slice to return, from 0.

    Raises:
        ValueError: a batch has fewer samples than there are ranks, the rank is invalid, or lengths are missing.
    """
    if not 0 <= rank < world_size <= batch_size:
        raise ValueError(f"Rank {rank} of {world_size} gets no share of batches of {batch_size} samples.")
    lengths = None if isinstance(samples, int) else samples
    if by_length and lengths is None:
        raise ValueError("Batches by length need the length of each sample, not just the number of samples.")
    return EpochPlan(
        size=samples if isinstance(samples, int) else len(samples),
        lengths=lengths if by_length else None,
        batch_size=batch_size,
        group_size=group_size,
        world_size=world_size,
        rank=rank,
        sample_key=key(seed, epoch, SAMPLE_ORDER),
        group_key=key(seed, epoch, GROUP_ORDER),
    )


class Measured(Protocol):
    """The parts of a store that a sampler may use."""

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """Length of each sample."""
        ...

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of one number per sample, such as `target`."""
        ...

    def __contains__(self, name: object) -> bool: ...

    def __len__(self) -> int: ...


class Sampler:
    """The default sampler: all samples once per epoch, shuffled."""

    draws_held_out: ClassVar[bool] = False
    """Whether `held_out` determines the batches of evaluations."""

    class Parameters(BaseParameters):
        """Keys of every sampler."""

        batch_by_len: bool = param(False, doc="Put samples of similar length into one batch: less padding, faster.")

    def __init__(self, parameters: Parameters) -> None:
        self.by_length = parameters.batch_by_len

    @property
    def unit_size(self) -> int:
        """Number of samples that belong together, and must not be split over batches or processes."""
        return 1

    def plan(self, samples: NDArray[np.integer[Any]] | int, **options: int) -> EpochPlan:
        """Return the plan of one epoch; see `plan_epoch` for the options."""
        return plan_epoch(samples, by_length=self.by_length, **options)

    def plan_of(self, source: Measured, **options: int) -> EpochPlan:
        """Return the plan of one epoch of these samples; see `plan_epoch` for the options."""
        return self.plan(source.lengths if self.by_length else len(source), **options)

    def epoch_size(self, source: Measured | int) -> int:
        """Return the number of samples of an epoch; `source` may be a number if the samples do not exist yet."""
        return source if isinstance(source, int) else len(source)

    def held_out(self, source: Measured, *, batch_size: int, seed: int) -> list[Rows] | None:
        """Return the rows of each batch of an evaluation, if the sampler determines them; None: every row once."""
        del source, batch_size, seed
        return None
