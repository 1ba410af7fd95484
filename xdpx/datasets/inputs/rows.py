"""Work on the rows of a batch: cut, join, repeat without weight, tell how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.utils.nested_map import NestedMap

SAMPLE_WEIGHTS = "eval_sample_weights"
"""Weight of each row, float32, (B,): 0 for rows that only fill a batch up."""

PROVENANCE = "provenance"
"""Where each row comes from: int32 (B,) arrays shard_index, num_shards and index_within_shard; -1 for filling rows.

Of packed rows (B, S): entry k - 1 is that of segment k; -1 behind the last one."""

_WITHOUT_WEIGHT = frozenset({SAMPLE_WEIGHTS, "weights"})


def as_batch(item: object) -> NestedMap:
    """Turn a dict of arrays, tensors or lists into a NestedMap of NumPy arrays, 32 bits wide as devices have them.

    Raises:
        TypeError: it is no dict.
        ValueError: an integer does not fit into 32 bits.
    """
    if not isinstance(item, Mapping):
        raise TypeError(f"A batch is a dict of arrays; this is a {type(item).__name__}.")
    return NestedMap({k: as_batch(v) if isinstance(v, Mapping) else _narrow(k, np.asarray(v)) for k, v in item.items()})


_NARROWER = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32, np.dtype(np.float64): np.float32}


def _narrow(name: str, array: NDArray[Any]) -> NDArray[Any]:
    narrower = _NARROWER.get(array.dtype)
    if narrower is None:
        return array
    narrowed = array.astype(narrower)
    if array.dtype.kind != "f" and not np.array_equal(narrowed, array):
        raise ValueError(
            f"'{name}' holds {array.max()}, which does not fit into 32 bits. Keep such ids out of batches."
        )
    return narrowed


def num_rows(batch: NestedMap) -> int:
    """Count the rows. Raises ValueError when arrays disagree, or there is none."""
    counts = {name: np.shape(array)[0] if np.ndim(array) else 0 for name, array in batch.FlattenItems()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"The arrays of a batch have different numbers of rows: {counts}.")
    return int(next(iter(counts.values())))


def take_rows(batch: NestedMap, rows: slice | NDArray[np.integer[Any]]) -> NestedMap:
    """Cut rows out of every array."""
    return batch.Transform(lambda array: array[rows])


def join_rows(batches: Sequence[NestedMap]) -> NestedMap:
    """Lay batches of the same structure behind one another."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.Flatten() for batch in batches), strict=True)
    return batches[0].Pack(np.concatenate(column) for column in columns)


def with_sample_weights(batch: NestedMap) -> NestedMap:
    """Return every row the weight 1, where the batch has no weights of rows."""
    if SAMPLE_WEIGHTS in batch:
        return batch
    weighted = NestedMap(batch)
    weighted[SAMPLE_WEIGHTS] = np.ones(num_rows(batch), np.float32)
    return weighted


def pad_rows(batch: NestedMap, count: int) -> NestedMap:
    """Append `count` copies of the first row that weigh nothing and come from nowhere."""
    if not count:
        return batch
    first = np.zeros(count, np.int64)
    return join_rows([batch, without_weight(take_rows(batch, first))])


def without_weight(batch: NestedMap) -> NestedMap:
    """Remove the weight of all rows: weights 0, paddings 1, provenance -1."""
    return batch.TransformWithKey(_weightless)


def _weightless(path: str, array: NDArray[Any]) -> NDArray[Any]:
    *above, name = path.split(".")
    if name in _WITHOUT_WEIGHT:
        return np.zeros_like(array)
    if name == "paddings":
        return np.ones_like(array)
    return np.full_like(array, -1) if PROVENANCE in above else array


def filled_to(rows: Iterable[NestedMap], count: int) -> NestedMap:
    """Join parts of a batch and fill it to `count` rows."""
    batch = join_rows(list(rows))
    return pad_rows(batch, count - num_rows(batch))
