"""Which example stands where in the stream of a run: pure functions of (seed, place), looked up and never replayed.

A stream is endless when it repeats: epoch after epoch, each in an order of its own. A global batch is a stretch of the
stream, and each host takes its part of that stretch. So the number of examples that were used, over all hosts, is all
that must be known to go on, with any number of hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.randomness import bits, key, permute

Rows = NDArray[np.int64]

EXAMPLE_ORDER, BLEND_ORDER = 11, 12
"""What a key is for; two orders from the same seed must not be alike."""

BLOCKS_KEPT = 4
"""Looked-up blocks that are kept, so that a batch, a small part of one, costs next to nothing."""

FEW_EXAMPLES = 1024
"""Up to so many, an epoch is sorted and not walked through."""

PLACES_PER_BLOCK = 4096
"""Places are looked up so many at a time; a blend keeps its proportions exactly over them (weights are rounded)."""


@dataclass(frozen=True)
class Order:
    """The examples of one dataset, in the order in which they come.

    Attributes:
        size: number of examples, at least 1.
        seed: of the shuffle; None leaves them as they stand.
        repeat: whether they come again and again.
    """

    size: int
    seed: int | None = None
    repeat: bool = False
    _kept: dict[int, Rows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def length(self) -> int | None:
        """How many places the stream has; None when it has no end."""
        return None if self.repeat else self.size

    def at(self, places: Rows) -> Rows:
        """Tell which example stands at each place."""
        return places % self.size if self.seed is None else _by_block(places, self._kept, self._shuffled)

    def _shuffled(self, block: int) -> Rows:
        """Look the examples up that stand in a block of places."""
        epochs, offsets = np.divmod(np.arange(block * PLACES_PER_BLOCK, (block + 1) * PLACES_PER_BLOCK), self.size)
        if self.size <= FEW_EXAMPLES:
            return self._sorted(epochs, offsets)
        rows = np.empty_like(offsets)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            rows[here] = permute(offsets[here], self.size, key(self.seed or 0, epoch, EXAMPLE_ORDER))
        return rows

    def _sorted(self, epochs: Rows, offsets: Rows) -> Rows:
        """Sort the few examples by words drawn for them: all epochs at once, of which a batch may see many."""
        wanted, which = np.unique(epochs, return_inverse=True)
        keys = bits(key(self.seed or 0, EXAMPLE_ORDER), wanted)
        orders = np.argsort(bits(keys[:, None], np.arange(self.size)), axis=1, kind="stable")
        return orders[which, offsets]


@dataclass(frozen=True)
class Blend:
    """Several datasets mixed by weight; each goes through its own epochs. It has no end.

    Attributes:
        sizes: number of examples of each.
        weights: how often each is drawn, in any unit, above 0.
        seed: of the mixing and of the shuffles; None mixes in a fixed pattern and leaves each in its order.
    """

    sizes: tuple[int, ...]
    weights: tuple[float, ...]
    seed: int | None = None
    _kept: dict[int, Rows] = field(default_factory=dict, repr=False, compare=False)

    length = None

    @cached_property
    def quotas(self) -> NDArray[np.int64]:
        """How many of PLACES_PER_BLOCK places each dataset has; none is left out. Largest remainders are served."""
        shares = np.array(self.weights) / sum(self.weights) * PLACES_PER_BLOCK
        quotas = np.maximum(1, np.floor(shares).astype(np.int64))
        missing = PLACES_PER_BLOCK - int(quotas.sum())
        if missing > 0:
            quotas[np.argsort(np.floor(shares) - shares, kind="stable")[:missing]] += 1
        else:  # tiny weights were rounded up: the largest pays
            quotas[np.argmax(quotas)] += missing
        return quotas

    @cached_property
    def _orders(self) -> list[Order]:
        seeds = [None if self.seed is None else self.seed + part for part in range(len(self.sizes))]
        return [Order(size, seed, repeat=True) for size, seed in zip(self.sizes, seeds, strict=True)]

    def at(self, places: Rows) -> tuple[Rows, Rows]:
        """Tell which dataset stands at each place, and which of its examples."""
        both = _by_block(places, self._kept, self._block)
        which, numbers = both[:, 0], both[:, 1]
        rows = np.empty_like(numbers)
        for part, order in enumerate(self._orders):
            here = which == part
            if here.any():
                rows[here] = order.at(numbers[here])
        return which, rows

    def _block(self, block: int) -> Rows:
        """Return, for each place of a block, the dataset and the number of times it was drawn before."""
        pattern = np.repeat(np.arange(len(self.sizes)), self.quotas)
        order = np.arange(PLACES_PER_BLOCK)
        pattern = pattern[permute(order, PLACES_PER_BLOCK, key(self.seed or 0, block, BLEND_ORDER))]
        numbers = np.empty_like(pattern)
        for part, quota in enumerate(self.quotas.tolist()):
            numbers[pattern == part] = block * quota + np.arange(quota)
        return np.stack([pattern, numbers], axis=1)


def _by_block(places: Rows, kept: dict[int, Rows], make: Callable[[int], Rows]) -> Rows:
    """Look places up in blocks; the last few are kept, as a batch is a small part of one and costs next to nothing."""
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
    """Return the places that a host takes of the global batch that begins at place `first`: one unbroken part.

    The arrays of all hosts, laid behind one another, are then the same whatever the number of hosts.
    """
    start = first + host * batch_size
    return np.arange(start, start + batch_size)


def num_batches(size: int, batch_size: int, num_hosts: int, *, pad: bool) -> int:
    """Count the batches of one epoch, equal on all hosts; what does not fill the last one is padded or left out."""
    per_batch = batch_size * num_hosts
    return -(-size // per_batch) if pad else size // per_batch


def weights_of(sizes: Sequence[int], rates: Sequence[float | None]) -> tuple[float, ...]:
    """Fill in missing rates: a dataset without one is drawn in proportion to its size.

    Raises:
        ValueError: some have a rate and others none, or a rate is not above 0.
    """
    given = [rate for rate in rates if rate is not None]
    if given and len(given) < len(rates):
        raise ValueError(f"Of {len(rates)} rates {len(given)} are given. Give all of them, or none (sizes decide).")
    if any(rate <= 0 for rate in given):
        raise ValueError(f"The rates are {given}; each must be above 0. Leave a task out rather than give it 0.")
    return tuple(map(float, given)) if given else tuple(map(float, sizes))
