"""Marks on token ids, in the two highest bits below the sign bit, which no vocabulary is large enough to use.

A loader knows where words and sentences begin; a processor may need this later, after texts have been cut and joined. A
mark on the first token stays with it and takes no extra memory.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

WORD_START = 1 << 30
SENTENCE_START = 1 << 29
ALL_MARKS = WORD_START | SENTENCE_START

Ids = NDArray[np.integer[Any]]
Kind = TypeVar("Kind", bound=np.integer[Any])


def put(mark: int, ids: NDArray[Kind], offsets: Ids) -> NDArray[Kind]:
    """Return ids with the first token of each non-empty row marked. `ids` (V,) are those of all rows."""
    marked = ids.copy()
    marked[offsets[:-1][np.diff(offsets) > 0]] |= mark
    return marked


def plain(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids without their marks."""
    return ids & ~ALL_MARKS


def words_before(ids: Ids) -> NDArray[np.int64]:
    """Return how many words begin before each token, and in all, (V + 1,); where none is marked, each token is one."""
    begins = has(WORD_START, ids)
    return np.concatenate([[0], np.cumsum(begins if begins.any() else np.ones(len(begins), np.int64))])


def has(mark: int, ids: Ids) -> NDArray[np.bool_]:
    """Return a boolean array of the shape of `ids`: which of them have a mark."""
    found: NDArray[np.bool_] = (ids & mark) != 0
    return found
