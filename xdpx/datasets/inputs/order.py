"""The order of examples in the stream of a run: a pure function of (seed, position), looked up without replaying.

A repeated stream is infinite: epoch after epoch, each in a different order. A global batch is a contiguous range of the
stream, and each host takes its part of that range. So the number of examples used over all hosts is sufficient to
resume, with any number of hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.processors.randomness import bits, key, permute

Rows = NDArray[np.int64]

EXAMPLE_ORDER, BLEND_ORDER = 11, 12
"""Purposes of random keys, so that different orders with the same seed are independent."""

BLOCKS_KEPT = 4
"""Number of blocks cached, since a batch is only a small part of a block."""

FEW_EXAMPLES = 1024
"""Maximum number of examples for which an epoch is shuffled by sorting instead of by `permute`."""

PLACES_PER_BLOCK = 4096
"""Number of positions looked up at a time; within them, a blend has exactly its proportions (weights are rounded)."""


@dataclass(frozen=True)
class Order:
    """The order of the examples of one dataset.

    Attributes:
        size: number of examples, at least 1.
        seed: of the shuffle; None for no shuffle.
        repeat: whether they are repeated for ever.
    """

    size: int
    seed: int | None = None
    repeat: bool = False
    _kept: dict[int, Rows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def length(self) -> int | None:
        """Length of the stream; None if it is infinite."""
        return None if self.repeat else self.size

    def at(self, places: Rows) -> Rows:
        """Return the example at each position."""
        return places % self.size if self.seed is None else _by_block(places, self._kept, self._shuffled)

    def _shuffled(self, block: int) -> Rows:
        """Return the examples of a block of positions."""
        epochs, offsets = np.divmod(np.arange(block * PLACES_PER_BLOCK, (block + 1) * PLACES_PER_BLOCK), self.size)
        if self.size <= FEW_EXAMPLES:
            return self._sorted(epochs, offsets)
        rows = np.empty_like(offsets)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            rows[here] = permute(offsets[here], self.size, key(self.seed or 0, epoch, EXAMPLE_ORDER))
        return rows

    def _sorted(self, epochs: Rows, offsets: Rows) -> Rows:
        """Return the examples at positions of epochs, shuffled by sorting random keys for all epochs at once."""
        wanted, which = np.unique(epochs, return_inverse=True)
        keys = bits(key(self.seed or 0, EXAMPLE_ORDER), wanted)
        orders = np.argsort(bits(keys[:, None], np.arange(self.size)), axis=1, kind="stable")
        return orders[which, offsets]


@dataclass(frozen=True)
class Blend:
    """The order of several datasets mixed by weight, each with epochs of its own. It is infinite.

    Attributes:
        sizes: number of examples of each.
        weights: frequencies of the datasets, in any unit, above 0.
        seed: of the mixing and of the shuffles; None mixes in a fixed pattern, without shuffling the datasets.
    """

    sizes: tuple[int, ...]
    weights: tuple[float, ...]
    seed: int | None = None
    _kept: dict[int, Rows] = field(default_factory=dict, repr=False, compare=False)

    length = None

    @cached_property
    def quotas(self) -> NDArray[np.int64]:
        """Number of positions of each dataset per block, at least 1, rounded by the largest remainder method."""
        shares = np.array(self.weights) / sum(self.weights) * PLACES_PER_BLOCK
        quotas = np.maximum(1, np.floor(shares).astype(np.int64))
        missing = PLACES_PER_BLOCK - int(quotas.sum())
        if missing > 0:
            quotas[np.argsort(np.floor(shares) - shares, kind="stable")[:missing]] += 1
        else:  # tiny weights were rounded up: taken from the largest
            quotas[np.argmax(quotas)] += missing
        return quotas

    @property
    def too_frequent(self) -> dict[int, float]:
        """Datasets that are drawn at least twice as often as their weight says, since once per block is the least.

        Returns:
            index of the dataset -> one in how many examples it should be.
        """
        shares = np.array(self.weights) / sum(self.weights)
        often = np.flatnonzero(self.quotas >= 2 * shares * PLACES_PER_BLOCK).tolist()
        return {part: 1 / float(shares[part]) for part in often}

    @cached_property
    def _orders(self) -> list[Order]:
        seeds = [None if self.seed is None else self.seed + part for part in range(len(self.sizes))]
        return [Order(size, seed, repeat=True) for size, seed in zip(self.sizes, seeds, strict=True)]

    def at(self, places: Rows) -> tuple[Rows, Rows]:
        """Return (the dataset at each position, the index of its example)."""
        both = _by_block(places, self._kept, self._block)
        which, numbers = both[:, 0], both[:, 1]
        rows = np.empty_like(numbers)
        for part, order in enumerate(self._orders):
            here = which == part
            if here.any():
                rows[here] = order.at(numbers[here])
        return which, rows

    def _block(self, block: int) -> Rows:
        """Return the dataset at each position of a block, and how often it was drawn before, (PLACES_PER_BLOCK, 2)."""
        pattern = np.repeat(np.arange(len(self.sizes)), self.quotas)
        order = np.arange(PLACES_PER_BLOCK)
        pattern = pattern[permute(order, PLACES_PER_BLOCK, key(self.seed or 0, block, BLEND_ORDER))]
        numbers = np.empty_like(pattern)
        for part, quota in enumerate(self.quotas.tolist()):
            numbers[pattern == part] = block * quota + np.arange(quota)
        return np.stack([pattern, numbers], axis=1)


def _by_block(places: Rows, kept: dict[int, Rows], make: Callable[[int], Rows]) -> Rows:
    """Return the values at positions, computed by blocks, the last few of which are cached in `kept`."""
    if not len(places):
        return make(0)[:0]
    first, last = int(places.min()) // PLACES_PER_BLOCK, int(places.max()) // PLACES_PER_BLOCK
    blocks = [_kept_block(block, kept, make) for block in range(first, last + 1)]
    found: Rows = (blocks[0] if first == last else np.concatenate(blocks))[places - first * PLACES_PER_BLOCK]
    return found


def _kept_block(block: int, kept: dict[int, Rows], make: Callable[[int], Rows]) -> Rows:
    if block not in kept:
        made = make(block)
        while len(kept) >= BLOCKS_KEPT:
            kept.pop(next(iter(kept)))
        kept[block] = made
    return kept[block]


def part_of(batch_size: int, num_hosts: int, host: int, *, first: int) -> Rows:
    """Return the positions of a host in the global batch that begins at position `first`: a contiguous range.

    So the concatenated arrays of all hosts do not depend on the number of hosts.
    """
    start = first + host * batch_size
    return np.arange(start, start + batch_size)


def num_batches(size: int, batch_size: int, num_hosts: int, *, pad: bool) -> int:
    """Return the number of batches per epoch, the same on all hosts; an incomplete last one counts only with `pad`."""
    per_batch = batch_size * num_hosts
    return -(-size // per_batch) if pad else size // per_batch


def weights_of(sizes: Sequence[int], rates: Sequence[float | None]) -> tuple[float, ...]:
    """Return the weights of datasets: their rates, or their sizes if no rates are given.

    Raises:
        ConfigError: some rates are missing, or a rate is not a finite number above 0.
    """
    given = [rate for rate in rates if rate is not None]
    if given and len(given) < len(rates):
        problem = f"of {len(rates)} rates, {len(given)} are given."
        raise refusal("rates", problem, "Give all of them, or none (sizes decide).")
    if not all(0 < rate < math.inf for rate in given):
        problem = f"are {given}; each must be a finite number above 0."
        raise refusal("rates", problem, "Remove a task instead of setting its rate to 0.")
    return tuple(map(float, given)) if given else tuple(map(float, sizes))
