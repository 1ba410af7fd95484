"""Encode many texts into two flat arrays of ids, exactly as the tokenizer would, but with a cache of words.

Letters: C characters of all texts together, S segments (words and single characters), N rows, V ids of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import wrong_return
from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.characters import HIDDEN, SINGLE, STAND_IN, WORD, Boundaries
from xdpx.tokenizers.vocabulary import Vocabulary

MAX_WORDS = 1 << 18
MAX_CHARACTERS = 1 << 24
"""Size at which the cache is cleared. Natural text refills it within a second, and memory stays below 64 MiB."""


class Encoded(NamedTuple):
    """Ids of many texts. Row i is values[offsets[i]:offsets[i + 1]].

    Attributes:
        values: int32, shape (V,).
        offsets: int64, shape (N + 1,).
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> list[int]:
        """Return the ids of one text."""
        return list(self.values[self.offsets[index] : self.offsets[index + 1]].tolist())


class Encoder:
    """Encodes texts with one tokenizer and one vocabulary. Not thread-safe."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self._memo = _Memo(tokenizer, vocabulary) if tokenizer.boundaries is not None else None

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return self.tokenizer.encode([text], self.vocabulary)[0]

    def encode_many(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of many texts, equal to `encode` of each."""
        if self._memo is None or self.tokenizer.boundaries is None:
            return _encoded(self.tokenizer, self.vocabulary, texts)
        return self._memo.encode(texts, self.tokenizer.boundaries)

    def __reduce__(self) -> tuple[type[Encoder], tuple[Tokenizer, Vocabulary]]:
        return type(self), (self.tokenizer, self.vocabulary)


class _Words(dict[str, int]):
    """Word -> its number in the cache. On first access a word gets the next number and is added to `new`."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = len(self)
        self[word] = number
        self.new.append(word)
        return number


class _Memo:
    """A cache of the ids of all words so far, concatenated: word w has ids[starts[w]:starts[w] + counts[w]]."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._forget()

    def _forget(self) -> None:
        self._words = _Words()
        self._characters = 0
        self._of_character = np.full(0x110000, -1, np.int32)
        self._counts = np.zeros(0, np.int64)
        self._starts = np.zeros(0, np.int64)
        self._ids = np.zeros(0, np.int32)

    def encode(self, texts: Sequence[str], boundaries: Boundaries) -> Encoded:
        """Return the ids of all texts: split them together, look up every segment, and gather the ids."""
        if len(self._words) > MAX_WORDS or self._characters > MAX_CHARACTERS:
            self._forget()
        segments = _cut(texts, boundaries)
        numbers_S = self._numbers(segments)
        self._learn()
        return self._gather(numbers_S, segments.row_starts)

    def _numbers(self, segments: _Segments) -> NDArray[np.int32]:
        numbers_S = np.empty(len(segments.is_single), np.int32)
        words = segments.words
        numbers_S[~segments.is_single] = np.fromiter(map(self._words.__getitem__, words), np.int32, len(words))
        if len(segments.singles):
            numbers_S[segments.is_single] = self._numbers_of_characters(segments.singles)
        return numbers_S

    def _numbers_of_characters(self, codes: NDArray[np.unsignedinteger]) -> NDArray[np.int32]:
        numbers: NDArray[np.int32] = self._of_character[codes]
        if numbers.min() < 0:
            for code in np.unique(codes[numbers < 0]).tolist():
                self._of_character[code] = self._words[chr(code)]
            numbers = self._of_character[codes]
        return numbers

    def _learn(self) -> None:
        """Tokenize the words that were looked up but are not in the cache yet."""
        new = self._words.new
        if not new:
            return
        learnt = _encoded(self._tokenizer, self._vocabulary, new)
        self._characters += sum(map(len, new))
        self._counts = np.concatenate([self._counts, np.diff(learnt.offsets)])
        self._ids = np.concatenate([self._ids, learnt.values])
        self._starts = np.cumsum(self._counts) - self._counts
        self._words.new = []

    def _gather(self, numbers_S: NDArray[np.int32], row_starts: NDArray[np.int64]) -> Encoded:
        if not len(numbers_S):
            return Encoded(np.zeros(0, np.int32), np.zeros(len(row_starts), np.int64))
        counts_S = self._counts[numbers_S]
        ends_S = np.zeros(len(counts_S) + 1, np.int64)
        np.cumsum(counts_S, out=ends_S[1:])
        source_V = np.repeat(self._starts[numbers_S] - ends_S[:-1], counts_S)
        source_V += np.arange(ends_S[-1])
        return Encoded(self._ids[source_V], ends_S[row_starts])


class _Segments(NamedTuple):
    """Texts split at borders.

    Attributes:
        is_single: whether each segment is a single character, bool (S,).
        singles: code points of the single characters, in order.
        words: the other segments, in order.
        row_starts: index of the first segment of each row, and the number of segments, int64 (N + 1,).
    """

    is_single: NDArray[np.bool_]
    singles: NDArray[np.unsignedinteger]
    words: list[str]
    row_starts: NDArray[np.int64]


def _cut(texts: Sequence[str], boundaries: Boundaries) -> _Segments:
    joined = " ".join(texts)
    codec, dtype = ("ascii", np.uint8) if joined.isascii() else ("utf-32-le", np.uint32)
    codes_C: NDArray[np.unsignedinteger] = np.frombuffer(joined.encode(codec), dtype)
    kinds_C = boundaries.kinds[codes_C]
    if kinds_C.max(initial=0) == HIDDEN:
        hidden = kinds_C == HIDDEN
        codes_C = np.where(hidden, dtype(STAND_IN), codes_C)
        kinds_C[hidden] = WORD
    word_C = kinds_C == WORD
    begins_C = word_C.copy()
    begins_C[1:] &= ~word_C[:-1]
    single_C = kinds_C == SINGLE
    starts_S = np.flatnonzero(begins_C | single_C)
    words = np.where(word_C, codes_C, dtype(32)).tobytes().decode(codec).split()
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    borders = np.concatenate([[0], np.cumsum(lengths + 1)])
    return _Segments(single_C[starts_S], codes_C[single_C], words, np.searchsorted(starts_S, borders))


def _encoded(tokenizer: Tokenizer, vocabulary: Vocabulary, texts: Sequence[str]) -> Encoded:
    """Return the ids of many texts.

    Raises:
        ConfigError: a user's `encode` returns something else than ids of the vocabulary, one list for each text.
    """
    rows: Any = tokenizer.encode(texts, vocabulary)
    remedy = f"Return a list of ids for each text, each id in [0, {len(vocabulary):,}), the lines of the vocabulary."
    if not isinstance(rows, list | tuple) or len(rows) != len(texts):
        count = f"{len(rows)} rows" if isinstance(rows, list | tuple) else type(rows).__name__
        raise wrong_return("tokenizer", tokenizer, "encode", f"{count} for {len(texts)} texts", remedy)
    try:
        found = _flatten(rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong_return("tokenizer", tokenizer, "encode", f"{rows!r:.60}", remedy) from error
    values = found.values
    if len(values) and not (values.min() >= 0 and values.max() < len(vocabulary)):
        odd = values[(values < 0) | (values >= len(vocabulary))][0]
        raise wrong_return("tokenizer", tokenizer, "encode", f"the id {odd}, which is not in the vocabulary", remedy)
    return found


def _flatten(rows: Sequence[Sequence[int]]) -> Encoded:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return Encoded(np.fromiter(chain.from_iterable(rows), np.int32, offsets[-1]), offsets)
