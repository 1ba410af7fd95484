"""To which sizes batches are filled up, so that few shapes are compiled."""

from __future__ import annotations

SMALLEST = 8


def bucket(size: int, most: int | None = None) -> int:
    """Return the smallest of 8, 16, 24, 32, 48, 64, 96, 128, 192, ... that has room, and `most` where that is less.

    At most a third of a width is filling, and there are two widths for each doubling.
    """
    room = SMALLEST
    while room < size:
        is_power = room & (room - 1) == 0 and room > SMALLEST
        room = room * 3 // 2 if is_power else 1 << room.bit_length()  # which is the next power of two
    return room if most is None else max(size, min(room, most))


def multiple(size: int, of: int) -> int:
    """Return the smallest multiple of `of` that is not below `size`."""
    return -(-size // of) * of
