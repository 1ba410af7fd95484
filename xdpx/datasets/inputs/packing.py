"""First-fit packing: put each example into the first row that has room for it.

With one feature, the rows are the leaves of a binary tree whose nodes store the most room below them. With several, no
such number tells whether all of them fit, so rows are filled one after the other: a row takes, in order, all that still
fit, and the next one is searched for without a Python step per example.

Shape letters: N examples, D features in separate arrays (1 for a language model, 2 for source and target).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.integer[Any]]

LOOK_AHEAD = 32
"""Number of examples whose lengths are summed at a time; more than fit into most rows."""


class Packed(NamedTuple):
    """The assignment of examples to rows.

    Attributes:
        rows: row of each example, int64, shape (N,); -1 for an example without tokens.
        starts: position where it begins in its row, int64, shape (N, D).
        segments: its number in its row, from 1, int64, shape (N,); 0 for an example without tokens.
        num_rows: number of rows.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    segments: NDArray[np.int64]
    num_rows: int

    def of(self, first: int, count: int) -> tuple[NDArray[np.int64], Packed]:
        """Return (indices of the examples in `count` rows from `first` on, their assignment relative to `first`)."""
        which = np.flatnonzero((self.rows >= first) & (self.rows < first + count))
        return which, Packed(self.rows[which] - first, self.starts[which], self.segments[which], count)


def one_per_row(count: int, num_features: int) -> Packed:
    """Return the assignment of each of `count` examples to a separate row."""
    return Packed(np.arange(count), np.zeros((count, num_features), np.int64), np.ones(count, np.int64), count)


def first_fit(lengths_ND: Lengths, limits_D: Lengths) -> Packed:
    """Return the assignment of each example to the first row that has room for all its features.

    Args:
        lengths_ND: number of tokens of each example, by feature, shape (N, D).
        limits_D: width of a row in tokens, by feature, shape (D,).

    Raises:
        ValueError: an example is longer than a row.
    """
    lengths_ND = np.asarray(lengths_ND, np.int64)
    limits_D = np.asarray(limits_D, np.int64)
    _refuse_too_long(lengths_ND, limits_D)
    rows = np.full(len(lengths_ND), -1, np.int64)
    starts = np.zeros(lengths_ND.shape, np.int64)
    segments = np.zeros(len(lengths_ND), np.int64)
    taken = np.flatnonzero(lengths_ND.any(axis=1))
    lengths_TD = lengths_ND[taken]
    one = len(limits_D) == 1
    rows[taken] = _rows_by_tree(lengths_TD[:, 0], int(limits_D[0])) if one else _rows_by_filling(lengths_TD, limits_D)
    order = taken[np.argsort(rows[taken], kind="stable")]  # the examples of one row after those of another
    begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
    counts = np.diff(begins, append=len(order))
    segments[order] = np.arange(1, len(order) + 1) - np.repeat(begins, counts)
    before_ND = np.cumsum(lengths_ND[order], axis=0) - lengths_ND[order]
    starts[order] = before_ND - np.repeat(before_ND[begins], counts, axis=0)
    return Packed(rows, starts, segments, len(begins))


def _refuse_too_long(lengths_ND: Lengths, limits_D: Lengths) -> None:
    too_long = np.flatnonzero((lengths_ND > limits_D).any(axis=1))
    if len(too_long):
        found = lengths_ND[too_long[0]].tolist()
        raise ValueError(f"Example {too_long[0]} has {found} tokens, a row {limits_D.tolist()}. Trim examples first.")


def _rows_by_tree(lengths: Lengths, limit: int) -> NDArray[np.int64]:
    """Return the row of each example of one feature, whose lengths are positive."""
    half = 1 << max(len(lengths) - 1, 0).bit_length()  # number of leaves; the children of node n are 2n and 2n + 1
    room = [limit] * (2 * half)
    rows = []
    # Plain Python: arrays would need several calls for each row, which takes 4 to 40 times as long.
    for length in lengths.tolist():
        node = 1
        while node < half:
            node *= 2
            if room[node] < length:
                node += 1
        rows.append(node - half)
        room[node] -= length
        while node > 1:
            node //= 2
            most = max(room[2 * node], room[2 * node + 1])
            if room[node] == most:
                break
            room[node] = most
    return np.array(rows, np.int64)


def _rows_by_filling(lengths_ND: Lengths, limits_D: Lengths) -> NDArray[np.int64]:
    """Return the row of each example; none is empty."""
    rows = np.full(len(lengths_ND), -1, np.int64)
    waiting, lengths_DN = np.arange(len(lengths_ND)), np.ascontiguousarray(lengths_ND.T)
    row = 0
    while len(waiting):
        taken = _fill(lengths_DN, limits_D.tolist())
        rows[waiting[taken]] = row
        left = np.ones(len(waiting), np.bool_)
        left[taken] = False
        waiting, lengths_DN = waiting[left], lengths_DN[:, left]
        row += 1
    return rows


def _fill(lengths_DN: Lengths, room_D: list[int]) -> list[int]:
    """Return the indices of the waiting examples that go into one row."""
    taken: list[int] = []
    place = 0
    while True:
        run = _run(lengths_DN[:, place : place + LOOK_AHEAD], room_D)
        taken.extend(range(place, place + run))
        place += run
        fits = _fitting(lengths_DN[:, place:], room_D)
        nearest = int(fits.argmax()) if len(fits) else 0
        if not len(fits) or not fits[nearest]:
            return taken
        place += nearest


def _run(ahead_DN: Lengths, room_D: list[int]) -> int:
    """Return how many of the next examples fit together, and subtract their lengths from `room_D`."""
    sums_DN = np.cumsum(ahead_DN, axis=1)
    run = min(int(np.searchsorted(sums, room, "right")) for sums, room in zip(sums_DN, room_D, strict=True))
    if run:
        for feature, used in enumerate(sums_DN[:, run - 1].tolist()):
            room_D[feature] -= used
    return run


def _fitting(lengths_DN: Lengths, room_D: list[int]) -> NDArray[np.bool_]:
    """Return whether each example fits, shape (N,)."""
    fits: NDArray[np.bool_] = lengths_DN[0] <= room_D[0]
    for lengths, room in zip(lengths_DN[1:], room_D[1:], strict=True):
        fits &= lengths <= room
    return fits
