"""Randomness without a generator: every draw is a hash of what it is for, so nothing depends on what was drawn before.

The order of samples and the noise on a sample are functions of (seed, epoch, sample id) alone. A resumed run, another
number of workers or ranks, another batch: all see the same numbers. The constants are frozen by golden tests.

Source: the finaliser of SplitMix64, Steele, Lea and Flood, OOPSLA 2014, figure 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UINT64 = np.uint64
_GOLDEN = UINT64(0x9E3779B97F4A7C15)
_FIRST = UINT64(0xBF58476D1CE4E5B9)
_SECOND = UINT64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53
_TURNS = 6  # with five, orders of fewer than ten items are visibly uneven

Words = NDArray[np.uint64]


def mix(state: Words) -> Words:
    """Scramble 64-bit words so that neighbours become unrelated. A bijection."""
    state = (state ^ (state >> UINT64(30))) * _FIRST
    state = (state ^ (state >> UINT64(27))) * _SECOND
    return state ^ (state >> UINT64(31))


def key(*parts: int) -> Words:
    """Hash a few integers, e.g. (seed, epoch), into one word of shape (1,). Their order matters."""
    state = np.zeros(1, UINT64)
    for part in parts:
        state = mix(state + _GOLDEN + UINT64(part & 0xFFFFFFFFFFFFFFFF))
    return state


def bits(keys: Words, counter: NDArray[Any] | int) -> Words:
    """Draw the `counter`-th word of each key: uniform over all 64-bit numbers. Shapes broadcast."""
    return mix(keys + _GOLDEN * (np.atleast_1d(counter).astype(UINT64) + UINT64(1)))


def units(words: Words) -> NDArray[np.float64]:
    """Turn words into numbers in [0, 1), 53 bits each."""
    return (words >> UINT64(11)).astype(np.float64) * _TO_UNIT


def below(words: Words, limit: int) -> NDArray[np.int64]:
    """Turn words into integers in [0, limit), limit < 2**32. The bias is below limit / 2**32."""
    return ((words >> UINT64(32)) * UINT64(limit) >> UINT64(32)).astype(np.int64)


def permute(positions: NDArray[Any], size: int, keys: Words) -> NDArray[np.int64]:
    """Tell which of `size` items stands at each position of a shuffled row, without shuffling the row.

    A bijection on [0, 2**width) made of keyed multiplications and shifts is walked until it lands below `size`
    (cycle walking), so any stretch of the order is found in the time of that stretch. At least 64 items are walked
    among, because a bijection of very few bits shuffles badly.

    Args:
        positions: integers in [0, size), any shape.
        size: number of items.
        keys: one word from `key`, which picks the order.
    """
    width = max(6, (size - 1).bit_length())
    items = _shuffle_bits(np.asarray(positions).astype(UINT64), width, keys)
    while (outside := items >= size).any():
        items[outside] = _shuffle_bits(items[outside], width, keys)
    return items.astype(np.int64)


def _shuffle_bits(items: Words, width: int, keys: Words) -> Words:
    mask = UINT64((1 << width) - 1)
    shift = UINT64(width // 2)
    for turn in range(_TURNS):
        constants = bits(keys, np.array([2 * turn, 2 * turn + 1]))
        items = (items * (constants[0] | UINT64(1)) + constants[1]) & mask
        items ^= items >> shift
    return items
