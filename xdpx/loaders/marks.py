"""Marks that travel on token ids, in the two highest bits below the sign: no vocabulary is that large.

A loader knows where words and sentences begin, and a processor may want to know it when samples long have been cut and
joined. A mark on the first token goes wherever the token goes, and costs no room.
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
    """Mark the first token of each row that has one. `ids` are those of all rows together, shape (V,)."""
    marked = ids.copy()
    marked[offsets[:-1][np.diff(offsets) > 0]] |= mark
    return marked


def plain(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids without their marks."""
    return ids & ~ALL_MARKS


def has(mark: int, ids: Ids) -> NDArray[np.bool_]:
    """Tell which tokens carry a mark, shape of `ids`."""
    found: NDArray[np.bool_] = (ids & mark) != 0
    return found
