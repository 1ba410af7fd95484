"""Batches of one update, fetched together: their targets can be counted before the first of them is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def windows(batches: Iterable[T], accumulation: int) -> Iterator[list[T]]:
    """Yield the batches of each update: `accumulation` of them, fewer in the last window of an epoch."""
    iterator = iter(batches)
    while window := list(islice(iterator, accumulation)):
        yield window
