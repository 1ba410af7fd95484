"""Long rows cut into windows that overlap, and which part of a row each window answers for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.samples import Integers, offsets_of


class Windows(NamedTuple):
    """Parts of rows, in the order of the rows; all of shape (W,).

    Attributes:
        rows: which row a window is of.
        numbers: its number among those of the row, from 0.
        starts: where in the row it begins.
        lengths: how long it is.
    """

    rows: NDArray[np.int64]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def windows_of(lengths: Integers, room: Integers, stride: int | None) -> Windows:
    """Cut rows into windows that leave nothing out, or only their beginnings where there is no stride.

    Args:
        lengths: of the rows, (N,).
        room: longest window of each row, (N,).
        stride: from the beginning of a window to the next; a window's own length where that is shorter.
    """
    step = np.maximum(np.minimum(stride or 1, room), 1)
    further = -(-np.maximum(lengths - room, 0) // step)
    counts = np.where((room > 0) & (stride is not None), 1 + further, 1)
    rows = np.repeat(np.arange(len(lengths)), counts)
    numbers = np.arange(len(rows)) - np.repeat(offsets_of(counts)[:-1], counts)
    starts = numbers * step[rows]
    return Windows(rows, numbers, starts, np.minimum(room[rows], lengths[rows] - starts))


def own_parts(windows: Windows, lengths: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where in its row the part begins, and ends, that each window answers for: every place has one window.

    What two windows share is halved, so that each place is read with as much around it as there is.

    Args:
        windows: of rows, none of which was only cut.
        lengths: of the rows, (N,).

    Returns:
        (first place, the one behind the last), both of shape (W,).
    """
    ends = windows.starts + windows.lengths
    first = np.where(windows.numbers > 0, (windows.starts + np.roll(ends, 1)) // 2, 0)
    last_of_row = np.append(windows.rows[1:] != windows.rows[:-1], True)[: len(windows.rows)]
    return first, np.where(last_of_row, lengths[windows.rows], np.roll(first, -1))
