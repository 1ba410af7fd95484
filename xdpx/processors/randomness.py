"""Counter-based random numbers: every draw is a hash of its purpose, and independent of earlier draws.

The order of samples and the noise on a sample are functions of only (seed, epoch, sample id). So a resume, the number
of workers or ranks, and the batch do not change them. The constants are frozen by golden tests.

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
_WIDTH_OF_TABLE = 8
"""Most bits of a permutation that is computed once for all its items: walking through a table is then faster."""

Words = NDArray[np.uint64]


def mix(state: Words) -> Words:
    """Return 64-bit words scrambled by a bijection, so that similar inputs have unrelated outputs."""
    state = (state ^ (state >> UINT64(30))) * _FIRST
    state = (state ^ (state >> UINT64(27))) * _SECOND
    return state ^ (state >> UINT64(31))


def key(*parts: int) -> Words:
    """Return a hash of integers, e.g. (seed, epoch), as one word of shape (1,). Their order matters."""
    state = np.zeros(1, UINT64)
    for part in parts:
        state = mix(state + _GOLDEN + UINT64(part & 0xFFFFFFFFFFFFFFFF))
    return state


def bits(keys: Words, counter: NDArray[Any] | int) -> Words:
    """Return the draw number `counter` of each key: uniform 64-bit words. Shapes are broadcast."""
    return mix(keys + _GOLDEN * (np.atleast_1d(counter).astype(UINT64) + UINT64(1)))


def units(words: Words) -> NDArray[np.float64]:
    """Return words as numbers in [0, 1), with 53 bits each."""
    return (words >> UINT64(11)).astype(np.float64) * _TO_UNIT


def below(words: Words, limit: int) -> NDArray[np.int64]:
    """Return words as integers in [0, limit), limit < 2**32. The bias is below limit / 2**32."""
    return ((words >> UINT64(32)) * UINT64(limit) >> UINT64(32)).astype(np.int64)


def permute(positions: NDArray[Any], size: int, keys: Words) -> NDArray[np.int64]:
    """Return the items at some positions of a random permutation of `size` items, without computing all of it.

    A bijection on [0, 2**width), made of keyed multiplications and shifts, is repeated until the result is below `size`
    (cycle walking), so the cost is proportional to the number of positions. The width is at least 6 bits, because a
    bijection of fewer bits shuffles badly.

    Args:
        positions: integers in [0, size), any shape.
        size: number of items.
        keys: one word from `key`, which selects the permutation.
    """
    width = max(6, (size - 1).bit_length())
    constants = bits(keys, np.arange(2 * _TURNS))
    items = np.asarray(positions).astype(UINT64)
    if width > _WIDTH_OF_TABLE:
        items = _shuffle_bits(items, width, constants)
        while (outside := items >= size).any():
            items[outside] = _shuffle_bits(items[outside], width, constants)
    else:
        shuffled = _shuffle_bits(np.arange(1 << width, dtype=UINT64), width, constants)
        items = shuffled[items]
        while (outside := items >= size).any():
            items[outside] = shuffled[items[outside]]
    return items.astype(np.int64)


def _shuffle_bits(items: Words, width: int, constants: Words) -> Words:
    mask = UINT64((1 << width) - 1)
    shift = UINT64(width // 2)
    for factor, summand in constants.reshape(_TURNS, 2):
        items = (items * (factor | UINT64(1)) + summand) & mask
        items ^= items >> shift
    return items
