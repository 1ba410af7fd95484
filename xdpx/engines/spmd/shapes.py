"""The sizes to which batches are padded, so that few shapes are compiled."""

from __future__ import annotations

SMALLEST = 8


def bucket(size: int, most: int | None = None) -> int:
    """Return the smallest of 8, 16, 24, 32, 48, 64, 96, ... that is at least `size`, or `most` if that is less.

    From 16 on there are two sizes for each doubling, so less than a third of a size is padding beyond 16.
    """
    room = SMALLEST
    while room < size:
        is_power = room & (room - 1) == 0 and room > SMALLEST
        room = room * 3 // 2 if is_power else 1 << room.bit_length()  # which is the next power of two
    return room if most is None else max(size, min(room, most))


def multiple(size: int, of: int) -> int:
    """Return the smallest multiple of `of` that is at least `size`."""
    return -(-size // of) * of
