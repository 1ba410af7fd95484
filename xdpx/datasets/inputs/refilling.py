"""Inputs that fill the same arrays again for each batch: what several batches need to be held at once."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np

from xdpx.utils.nested_map import NestedMap


class Apart:
    """Keeps the batches of an input apart, if it fills the same arrays again while earlier batches are still in use.

    The first batches of each shape are copied, and kept until it is clear whether later ones share their memory. From
    then on, only arrays that do are copied; nothing, with most inputs. Parts of one large array count as shared memory:
    an input may read the next rows into it.

    Args:
        held: number of batches that are in use at once.
    """

    def __init__(self, held: int) -> None:
        self._most = held + 1
        self._seen: Counter[tuple[Any, ...]] = Counter()  # batches by the shapes of their arrays
        self._originals: deque[dict[str, Any]] = deque(maxlen=held)
        self._refilled: set[str] = set()

    def of(self, batch: NestedMap) -> NestedMap:
        """Return a batch that later ones do not change."""
        arrays = {name: leaf for name, leaf in batch.FlattenItems() if isinstance(leaf, np.ndarray)}
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        self._seen[shapes] += 1
        if self._seen[shapes] <= self._most:
            self._refilled |= {
                name
                for earlier in self._originals
                for name, array in arrays.items()
                if name in earlier and np.may_share_memory(_whole(array), earlier[name])
            }
            self._originals.append({name: _whole(array) for name, array in arrays.items()})
            return batch.Transform(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf)
        self._originals.clear()
        if not self._refilled:
            return batch
        return batch.TransformWithKey(lambda name, leaf: leaf.copy() if name in self._refilled else leaf)


def _whole(array: Any) -> Any:
    """Return the array of which an array is a part; itself if it is none."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
