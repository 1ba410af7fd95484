"""Hashes of the words of many texts, computed with numpy and without a Python object per word, for speed.

Letters: P code points of concatenated texts; W words; G grams, i.e. words and pairs of adjacent words; N texts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHARACTERS_AT_ONCE = 1 << 16
"""Number of characters processed at a time, which fit into the CPU cache as eight bytes each."""
LAST_POINT = 0x32000
"""Code point after which there are no letters of living scripts."""

_HASH_BITS = np.uint64(40)
APART, IN_WORD, ALONE = 0, 1, 2
"""Kinds of characters: between words, part of a word, or a word of its own, as Chinese characters are."""

_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_ALONE_RANGES = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x31FFF))


class Points(NamedTuple):
    """Code points of concatenated texts, each followed by a line feed: text i begins at offsets[i]."""

    values_P: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    @property
    def rows_P(self) -> NDArray[np.int64]:
        """The index of the text of each code point."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Words(NamedTuple):
    """Words of texts: the hash of each, the index of its text, and its start and end in the text."""

    hashes_W: NDArray[np.uint64]
    rows_W: NDArray[np.int64]
    starts_W: NDArray[np.int64]
    ends_W: NDArray[np.int64]


class Grams(NamedTuple):
    """The distinct grams of each text, sorted by text: text i has hashes_G[offsets[i]:offsets[i + 1]]."""

    hashes_G: NDArray[np.uint64]
    rows_G: NDArray[np.int64]
    offsets: NDArray[np.int64]


def points_of(texts: Sequence[str]) -> Points:
    """Return the code points of texts."""
    joined = "\n".join(texts) + "\n" if texts else ""
    values = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    return Points(values, np.concatenate([[0], np.cumsum(lengths)]))


def pieces(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (index of the first text, texts) of pieces with about CHARACTERS_AT_ONCE characters."""
    start, characters = 0, 0
    for index, text in enumerate(texts):
        characters += len(text) + 1
        if characters >= CHARACTERS_AT_ONCE:
            yield start, texts[start : index + 1]
            start, characters = index + 1, 0
    if start < len(texts):
        yield start, texts[start:]


@cache
def kinds() -> NDArray[np.uint8]:
    """Return the kind of each code point, (LAST_POINT + 1,)."""
    found = np.zeros(LAST_POINT + 1, np.uint8)
    for point in range(LAST_POINT):
        sign = chr(point)
        if sign.isalnum() or unicodedata.category(sign)[0] == "M":
            found[point] = IN_WORD
    for first, last in _ALONE_RANGES:
        found[first : last + 1] *= ALONE
    return found


def words_of(texts: Sequence[str]) -> Words:
    """Return the words of texts, ignoring case: runs of letters and digits, and single Chinese characters."""
    found = [_words_of_piece(first, piece) for first, piece in pieces([text.lower() for text in texts])]
    if not found:
        return Words(np.zeros(0, np.uint64), *(np.zeros(0, np.int64) for _ in range(3)))
    return Words(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def _words_of_piece(first: int, texts: Sequence[str]) -> Words:
    """Return the words of a piece, hashed by differences of a running polynomial with invertible (odd) powers."""
    points = points_of(texts)
    kind_P = kinds()[np.minimum(points.values_P, LAST_POINT)]
    before_P = np.concatenate([[APART], kind_P[:-1]])
    after_P = np.concatenate([kind_P[1:], [APART]])
    starts = np.flatnonzero((kind_P == ALONE) | ((kind_P == IN_WORD) & (before_P != IN_WORD)))
    ends = np.flatnonzero((kind_P == ALONE) | ((kind_P == IN_WORD) & (after_P != IN_WORD))) + 1
    powers, inverses = _powers(len(points.values_P))
    sums = np.concatenate([[np.uint64(0)], np.cumsum((points.values_P.astype(np.uint64) + _MIX) * powers)])
    hashes = _mixed((sums[ends] - sums[starts]) * inverses[starts])
    rows = np.searchsorted(points.offsets, starts, side="right") - 1
    return Words(hashes, rows + first, starts - points.offsets[rows], ends - points.offsets[rows])


def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    size = 1 << max(count - 1, 1).bit_length()
    powers, inverses = _powers_of(size)
    return powers[:count], inverses[:count]


@cache
def _powers_of(size: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    inverse = np.uint64(pow(int(_BASE), -1, 1 << 64))
    ones = np.ones(size, np.uint64)
    return np.cumprod(ones * _BASE, dtype=np.uint64), np.cumprod(ones * inverse, dtype=np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return values with every bit spread over all bits. Source: the finalizer of MurmurHash3, Appleby 2011."""
    mixed = values ^ (values >> np.uint64(33))
    for factor in (_MIX, _SECOND):  # in place, because allocating large arrays is slow
        mixed *= factor
        mixed ^= mixed >> np.uint64(33)
    return mixed


def salted(hashes: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Return another hash function of the same items, one per salt."""
    return _mixed(hashes + np.uint64(salt * int(_BASE) % (1 << 64)))


def neighbours(words: Words) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return (hashes, indices of texts) of all pairs of adjacent words."""
    same = words.rows_W[1:] == words.rows_W[:-1]
    pairs = _mixed(words.hashes_W[:-1] * _SECOND + words.hashes_W[1:])
    return pairs[same], words.rows_W[1:][same]


def triples_of_signs(words: Words) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return (hashes, indices of texts) of all triples of adjacent one-character words, as in Chinese."""
    single = words.ends_W - words.starts_W == 1
    same = (words.rows_W[2:] == words.rows_W[:-2]) & single[2:] & single[1:-1] & single[:-2]
    pairs = _mixed(words.hashes_W[:-2] * _SECOND + words.hashes_W[1:-1])[same]
    return _mixed(pairs * _SECOND + words.hashes_W[2:][same]), words.rows_W[2:][same]


def whole_texts(words: Words, count: int) -> NDArray[np.uint64]:
    """Return a hash of the sequence of words of each text, (N,); 0 for a text without words."""
    found = np.zeros(count, np.uint64)
    if len(words.rows_W):
        first = np.flatnonzero(np.diff(words.rows_W, prepend=-1))
        places = (np.arange(len(words.rows_W)) - np.repeat(first, np.diff([*first, len(words.rows_W)]))).astype(
            np.uint64
        )
        found[words.rows_W[first]] = np.add.reduceat(_mixed(words.hashes_W + places * _BASE), first)
    return found


def grams_of(words: Words, count: int, *, triples: bool = False) -> Grams:
    """Return the distinct words and pairs of adjacent words of each text, by 40 bits of their hashes.

    Args:
        words: of the texts.
        count: number of texts.
        triples: include triples of adjacent one-character words.
    """
    parts = [(words.hashes_W, words.rows_W), neighbours(words)]
    parts += [triples_of_signs(words)] if triples else []
    hashes, rows = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    together = np.sort(packed(rows, hashes >> np.uint64(24)))
    new = np.ones(len(together), np.bool_)
    new[1:] = together[1:] != together[:-1]
    rows, hashes = unpacked(together[new])
    return Grams(hashes, rows, np.searchsorted(rows, np.arange(count + 1)))


def packed(rows: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers below 2^24 and hashes of 40 bits combined into one sortable number each."""
    together: NDArray[np.uint64] = (rows.astype(np.uint64) << _HASH_BITS) | hashes
    return together


def unpacked(together: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the (numbers, hashes) that `packed` combined."""
    return (together >> _HASH_BITS).astype(np.int64), together & np.uint64((1 << 40) - 1)
