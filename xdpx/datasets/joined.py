"""Several stores as one, without copying what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.archive import StoreError
from xdpx.datasets.store import Store
from xdpx.processors.samples import Integers, Samples, concatenate, offsets_of


class JoinedStores:
    """Stores one behind the other: row numbers run through all of them, and each sample keeps its id."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = list(stores)
        self._starts = offsets_of(np.array([len(store) for store in stores]))
        first = self.stores[0]
        for store in self.stores[1:]:
            if set(store.columns) != set(first.columns):
                here, there = ", ".join(store.columns), ", ".join(first.columns)
                raise StoreError(
                    f"{store.path} has the columns {here}, but {first.path} has {there}. Prepare them alike."
                )

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def lengths(self) -> Integers:
        """Length of every sample; the one column that is read through, and only to batch by length."""
        return np.concatenate([store.lengths for store in self.stores])

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of one number per sample."""
        return np.concatenate([store.numbers(name) for store in self.stores])

    def __contains__(self, name: object) -> bool:
        return name in self.stores[0]

    def take(self, rows: Integers) -> Samples:
        """Gather samples of any of the stores, in the given order."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        owned = owners[order]
        pieces = [
            self.stores[owner].take(rows[order[owned == owner]] - self._starts[owner]) for owner in np.unique(owned)
        ]
        together = pieces[0] if len(pieces) == 1 else concatenate(pieces)
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return together.take(back)
