"""Operations on the rows of a batch: take, concatenate, count, and pad with rows without weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.utils.nested_map import NestedMap

SAMPLE_WEIGHTS = "eval_sample_weights"
"""Key of the weight of each row, float32 (B,); 0 for padding rows."""

PROVENANCE = "provenance"
"""Key of the origin of each row: int32 arrays (B,) shard_index, num_shards and index_within_shard; -1 for padding rows.

For packed rows, (B, S): entry k - 1 is that of segment k; -1 after the last one."""

_WITHOUT_WEIGHT = frozenset({SAMPLE_WEIGHTS, "weights"})


def as_batch(item: object) -> NestedMap:
    """Return a dict of arrays, tensors or lists as a NestedMap of NumPy arrays, with 64-bit types reduced to 32 bits.

    Raises:
        ConfigError: it is not a dict.
        ValueError: an integer does not fit into 32 bits.
    """
    if not isinstance(item, Mapping):
        raise refusal("input", f"A batch is a dict of arrays; this is a {type(item).__name__}.")
    return NestedMap({k: as_batch(v) if isinstance(v, Mapping) else _narrow(k, np.asarray(v)) for k, v in item.items()})


def copied(batch: NestedMap) -> NestedMap:
    """Return a copy of a batch that is kept while an iterator goes on, which may fill its arrays again."""
    return batch.Transform(np.copy)


_NARROWER = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32, np.dtype(np.float64): np.float32}


def _narrow(name: str, array: NDArray[Any]) -> NDArray[Any]:
    narrower = _NARROWER.get(array.dtype)
    if narrower is None:
        return array
    narrowed = array.astype(narrower)
    if array.dtype.kind != "f" and not np.array_equal(narrowed, array):
        problem = f"'{name}' holds {array.max()}, which does not fit into 32 bits."
        raise refusal("input", problem, "Keep such ids out of batches.")
    return narrowed


def rows_of(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows of each array by name, without single numbers, which have none."""
    return {name: int(np.shape(array)[0]) for name, array in arrays.items() if np.ndim(array)}


def unlike_rows(arrays: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, problem, remedy) of each array with another number of rows than the first one."""
    rows = rows_of(arrays)
    first = next(iter(rows), "")
    for name, count in rows.items():
        if count != rows[first]:
            problem = f"has {count} row{'s' * (count != 1)}, but '{first}' has {rows[first]}."
            remedy = "Give every array one row per example. If unlike rows are meant, declare them in input_specs()."
            yield name, problem, remedy


def num_rows(batch: NestedMap) -> int:
    """Return the number of rows. Raises ValueError if arrays differ in it, or there are no arrays."""
    counts = {name: np.shape(array)[0] if np.ndim(array) else 0 for name, array in batch.FlattenItems()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"The arrays of a batch have different numbers of rows: {counts}.")
    return int(next(iter(counts.values())))


def take_rows(batch: NestedMap, rows: slice | NDArray[np.integer[Any]]) -> NestedMap:
    """Return a batch with the given rows of every array."""
    return batch.Transform(lambda array: array[rows])


def join_rows(batches: Sequence[NestedMap]) -> NestedMap:
    """Return batches of the same structure concatenated."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.Flatten() for batch in batches), strict=True)
    return batches[0].Pack(np.concatenate(column) for column in columns)


def with_sample_weights(batch: NestedMap) -> NestedMap:
    """Return the batch, with a weight of 1 for every row added if it has no weights of rows."""
    if SAMPLE_WEIGHTS in batch:
        return batch
    weighted = NestedMap(batch)
    weighted[SAMPLE_WEIGHTS] = np.ones(num_rows(batch), np.float32)
    return weighted


def pad_rows(batch: NestedMap, count: int) -> NestedMap:
    """Return the batch with `count` padding rows: copies of the first row without weight and provenance.

    A batch without weights of rows gets them, or models could not tell padding from examples.
    """
    if not count:
        return batch
    batch = with_sample_weights(batch)
    first = np.zeros(count, np.int64)
    return join_rows([batch, without_weight(take_rows(batch, first))])


def without_weight(batch: NestedMap) -> NestedMap:
    """Return the batch with the weight of all rows removed: weights 0, paddings 1, provenance -1."""
    return batch.TransformWithKey(_weightless)


def _weightless(path: str, array: NDArray[Any]) -> NDArray[Any]:
    *above, name = path.split(".")
    if name in _WITHOUT_WEIGHT:
        return np.zeros_like(array)
    if name == "paddings":
        return np.ones_like(array)
    return np.full_like(array, -1) if PROVENANCE in above else array


def filled_to(rows: Iterable[NestedMap], count: int) -> NestedMap:
    """Return the parts of a batch concatenated, and padded to `count` rows."""
    batch = join_rows(list(rows))
    return pad_rows(batch, count - num_rows(batch))
