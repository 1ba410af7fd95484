"""Torch operations that gather from or scatter into tensors, in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.inference.tf.shapes import Operation, size_of

if TYPE_CHECKING:
    from tensorflow import DType, Tensor


class Choices:
    """Embedding lookup, indexing, gather and scatter, top-k and sorting."""

    def __init__(self, tf: ModuleType) -> None:
        self._tf = tf

    def table(self) -> dict[str, Operation]:
        """Return {name of the torch operation: TensorFlow function}."""
        tf = self._tf
        return {
            "embedding": lambda kind, weight, indices, *how: tf.gather(weight, indices),
            "gather": lambda kind, x, dim, index, **how: tf.gather_nd(x, self._along(dim, index)),
            "index": self._index,
            "index_put": self._index_put,
            "index_select": lambda kind, x, dim, index: tf.gather(x, index, axis=dim),
            "scatter": self._scatter,
            "scatter_reduce": self._scatter_reduce,
            "searchsorted": self._searchsorted,
            "topk": self._topk,
            "sort": self._sort,
            "max": self._max,
            "argmax": lambda kind, *given: self._place(tf.argmax, *given),
            "argmin": lambda kind, *given: self._place(tf.argmin, *given),
            "where": lambda kind, condition, a, b: tf.where(condition, tf.cast(a, kind), tf.cast(b, kind)),
        }

    def _along(self, dim: int, index: Tensor) -> Tensor:
        """Return full coordinates for `index`: its values along `dim`, each entry's own position on other axes."""
        tf, rank = self._tf, index.shape.rank
        sizes = tf.unstack(tf.shape(index, out_type=tf.int64), num=rank)
        grid = tf.meshgrid(*(tf.range(size, dtype=tf.int64) for size in sizes), indexing="ij")
        grid[dim % rank] = tf.cast(index, tf.int64)
        return tf.stack(grid, axis=-1)

    def _index(self, kind: DType, x: Tensor, indices: Sequence[Any]) -> Tensor:
        """Return x[indices]; the axes that are indexed must be adjacent."""
        del kind
        tf, rank = self._tf, x.shape.rank
        given = [at for at, each in enumerate(indices) if each is not None]
        first, last = given[0], given[-1]
        if given != list(range(first, last + 1)) or any(indices[at].dtype == tf.bool for at in given):
            raise NotImplementedError("indices that are not adjacent, or masks")
        places = [tf.where(indices[at] < 0, indices[at] + size_of(tf, x, at), indices[at]) for at in given]
        together = self._together(places)
        found = tf.gather_nd(tf.transpose(x, [*given, *range(first), *range(last + 1, rank)]), together)
        width = together.shape.rank - 1
        return tf.transpose(found, [*range(width, width + first), *range(width), *range(width + first, rank_of(found))])

    def _together(self, places: Sequence[Any]) -> Tensor:
        """Return the indices of several axes, broadcast to a common shape, as coordinates of shape (..., axes)."""
        shape = places[0]
        for each in places[1:]:
            shape = shape + each
        return self._tf.stack([self._tf.broadcast_to(each, self._tf.shape(shape)) for each in places], axis=-1)

    def _index_put(
        self, kind: DType, x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
    ) -> Tensor:
        tf = self._tf
        if any(each is None or each.dtype == tf.bool for each in indices):
            raise NotImplementedError("masks, or axes left out")
        places = self._together([tf.cast(each, tf.int64) for each in indices])
        shape = tf.concat([tf.shape(places)[:-1], tf.shape(x)[len(indices) :]], axis=0)
        call = tf.tensor_scatter_nd_add if accumulate else tf.tensor_scatter_nd_update
        return call(x, places, tf.broadcast_to(tf.cast(values, kind), shape))

    def _scatter(self, kind: DType, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
        tf = self._tf
        source = src if tf.is_tensor(src) else tf.fill(tf.shape(index), tf.cast(src, kind))
        return tf.tensor_scatter_nd_update(x, self._along(dim, index), source)

    def _scatter_reduce(
        self, kind: DType, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
    ) -> Tensor:
        tf, places = self._tf, self._along(dim, index)
        if reduce not in {"amax", "amin"}:
            raise NotImplementedError(reduce)
        if not include_self:  # targets begin with the neutral element of the reduction
            edge = kind.min if reduce == "amax" else kind.max
            x = tf.tensor_scatter_nd_update(x, places, tf.fill(tf.shape(src), tf.cast(edge, kind)))
        call = tf.tensor_scatter_nd_max if reduce == "amax" else tf.tensor_scatter_nd_min
        return call(x, places, tf.cast(src, kind))

    def _searchsorted(
        self, kind: DType, row: Tensor, x: Tensor, *, right: bool = False, side: str | None = None, **how: Any
    ) -> Tensor:
        del how
        tf = self._tf
        return tf.cast(tf.searchsorted(row, x, side="right" if right or side == "right" else "left"), kind)

    def _topk(self, kind: DType, x: Tensor, k: Any, dim: int = -1, largest: bool = True, *how: Any) -> Any:
        del kind, how
        moved = self._with_last(x, dim)
        values, places = self._tf.math.top_k(moved if largest else -moved, k=k)
        values = self._with_last(values if largest else -values, dim)
        return values, self._tf.cast(self._with_last(places, dim), self._tf.int64)

    def _with_last(self, x: Tensor, dim: int) -> Tensor:
        """Return the tensor with axis `dim` and the last axis swapped."""
        order = list(range(rank_of(x)))
        order[dim], order[-1] = order[-1], order[dim]
        return self._tf.transpose(x, order)

    def _sort(self, kind: DType, x: Tensor, dim: int = -1, descending: bool = False, **how: Any) -> Any:
        del kind, how
        places = self._tf.argsort(x, axis=dim, direction="DESCENDING" if descending else "ASCENDING", stable=True)
        return self._tf.gather_nd(x, self._along(dim, places)), self._tf.cast(places, self._tf.int64)

    def _max(self, kind: DType, x: Tensor, dim: int, keepdim: bool = False) -> Any:
        del kind
        return self._tf.reduce_max(x, axis=dim, keepdims=keepdim), self._place(self._tf.argmax, x, dim, keepdim)

    def _place(self, call: Operation, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        places = call(x if dim is not None else self._tf.reshape(x, [-1]), axis=0 if dim is None else dim)
        return self._tf.expand_dims(places, dim) if keepdim else places


def rank_of(x: Tensor) -> int:
    """Return the number of axes of a tensor."""
    return int(x.shape.rank)
