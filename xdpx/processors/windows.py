"""Split long rows into overlapping windows, and assign each position of a row to one window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.samples import Integers, offsets_of


class Windows(NamedTuple):
    """Windows in the order of the rows; all attributes have shape (W,).

    Attributes:
        rows: index of the row of each window.
        numbers: number among the windows of the row, from 0.
        starts: position in the row where it begins.
        lengths: of the windows.
    """

    rows: NDArray[np.int64]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def windows_of(lengths: Integers, room: Integers, stride: int | None) -> Windows:
    """Return windows that cover all rows; without a stride, only the first window of each row.

    Args:
        lengths: of the rows, (N,).
        room: maximum length of a window of each row, (N,).
        stride: from the start of a window to the next; limited to the length of a window.
    """
    step = np.maximum(np.minimum(stride or 1, room), 1)
    further = -(-np.maximum(lengths - room, 0) // step)
    counts = np.where((room > 0) & (stride is not None), 1 + further, 1)
    rows = np.repeat(np.arange(len(lengths)), counts)
    numbers = np.arange(len(rows)) - np.repeat(offsets_of(counts)[:-1], counts)
    starts = numbers * step[rows]
    return Windows(rows, numbers, starts, np.minimum(room[rows], lengths[rows] - starts))


def own_parts(windows: Windows, lengths: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the part of its row that each window is responsible for, so that every position belongs to one window.

    The overlap of two windows is halved, so that each position is read with as much context as possible.

    Args:
        windows: that cover all rows.
        lengths: of the rows, (N,).

    Returns:
        (first position, position after the last), both of shape (W,).
    """
    ends = windows.starts + windows.lengths
    first = np.where(windows.numbers > 0, (windows.starts + np.roll(ends, 1)) // 2, 0)
    last_of_row = np.append(windows.rows[1:] != windows.rows[:-1], True)[: len(windows.rows)]
    return first, np.where(last_of_row, lengths[windows.rows], np.roll(first, -1))
