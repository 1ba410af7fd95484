"""The loader that is being iterated: rows gathered from its last batch must not contain samples twice."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_ITERATED: list[Any] = []
"""Loaders that are being iterated, the innermost last: an evaluation may begin within an epoch of training."""


@contextmanager
def iterating(loader: object) -> Generator[None]:
    """Note that a loader is being iterated."""
    _ITERATED.append(loader)
    try:
        yield
    finally:
        _ITERATED[:] = [each for each in _ITERATED if each is not loader]


def innermost() -> Any:
    """Return the loader that yielded the current batch; None outside of any."""
    return _ITERATED[-1] if _ITERATED else None


def is_at_end() -> bool:
    """Return whether the current batch is the last one of its loader."""
    return bool(getattr(innermost(), "end_of_dataloader", False))


def remainder() -> int:
    """Return the number of samples in the last, incomplete round of the current loader, over all ranks.

    0 if the round is complete; -1 if it is unknown, or outside of any loader.
    """
    return int(getattr(innermost(), "remainder", -1))
