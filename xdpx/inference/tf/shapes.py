"""Torch operations that change shapes or create tensors from them, in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow import DType, Tensor

Operation = Callable[..., Any]
END = (1 << 63) - 1
"""The value that torch uses for the end of an axis."""


def size_of(tf: ModuleType, x: Tensor, dim: int) -> int | Tensor:
    """Return the size of an axis: an int if it is fixed, else an int64 tensor."""
    fixed = x.shape[dim]
    return tf.shape(x, out_type=tf.int64)[dim] if fixed is None else int(fixed)


def as_shape(tf: ModuleType, sizes: Sequence[Any]) -> Any:
    """Return sizes as a shape for TensorFlow: a list of ints, or an int64 tensor."""
    if all(isinstance(size, int) for size in sizes):
        return list(sizes)
    return tf.stack([tf.cast(size, tf.int64) for size in sizes])


def _is(value: object, number: int) -> bool:
    return isinstance(value, int) and value == number


class Shapes:
    """Reshaping, slicing, and tensors created from a shape alone."""

    def __init__(self, tf: ModuleType) -> None:
        self._tf = tf

    def table(self) -> dict[str, Operation]:
        """Return {name of the torch operation: TensorFlow function}."""
        tf = self._tf
        return {
            "sym_size": lambda kind, x, dim: size_of(tf, x, dim),
            "sym_numel": lambda kind, x: tf.size(x, out_type=tf.int64),
            "view": lambda kind, x, size: tf.reshape(x, as_shape(tf, size)),
            "reshape": lambda kind, x, size: tf.reshape(x, as_shape(tf, size)),
            "permute": lambda kind, x, dims: tf.transpose(x, [dim % x.shape.rank for dim in dims]),
            "unsqueeze": lambda kind, x, dim: tf.expand_dims(x, dim),
            "squeeze": self._squeeze,
            "expand": self._expand,
            "slice": self._slice,
            "slice_scatter": self._slice_scatter,
            "copy": lambda kind, x, src, *how: tf.broadcast_to(tf.cast(src, kind), tf.shape(x)),
            "select": lambda kind, x, dim, index: x[(slice(None),) * (dim % x.shape.rank) + (index,)],
            "split_with_sizes": lambda kind, x, sizes, dim=0: tf.split(x, as_shape(tf, sizes), axis=dim),
            "cat": lambda kind, tensors, dim=0: tf.concat([tf.cast(each, kind) for each in tensors], axis=dim),
            "repeat": self._repeat,
            "flip": lambda kind, x, dims: tf.reverse(x, [dim % x.shape.rank for dim in dims]),
            "constant_pad_nd": self._pad,
            "diagonal": self._diagonal,
            "clone": lambda kind, x, **how: x,
            "alias": lambda kind, x: x,
            "detach": lambda kind, x: x,
            "_to_copy": lambda kind, x, **how: tf.cast(x, kind),
            "scalar_tensor": lambda kind, s, **how: tf.cast(s, kind),
            "full": lambda kind, size, value, **how: tf.fill(as_shape(tf, size), tf.cast(value, kind)),
            "full_like": lambda kind, x, value, **how: tf.fill(tf.shape(x), tf.cast(value, kind)),
            "empty": lambda kind, size, **how: tf.zeros(as_shape(tf, size), kind),
            "arange": self._arange,
        }

    def _expand(self, kind: DType, x: Tensor, size: Sequence[Any], **how: Any) -> Tensor:
        del kind, how
        new = len(size) - x.shape.rank
        kept = [size_of(self._tf, x, at - new) if _is(each, -1) else each for at, each in enumerate(size)]
        return self._tf.broadcast_to(x, as_shape(self._tf, kept))

    def _slice(
        self,
        kind: DType,
        x: Tensor,
        dim: int = 0,
        start: int | Tensor | None = None,
        end: int | Tensor | None = None,
        step: int = 1,
    ) -> Tensor:
        del kind
        return x[(slice(None),) * (dim % x.shape.rank) + (slice(start, None if _is(end, END) else end, step),)]

    def _slice_scatter(
        self,
        kind: DType,
        x: Tensor,
        src: Tensor,
        dim: int = 0,
        start: int | Tensor | None = None,
        end: int | Tensor | None = None,
    ) -> Tensor:
        """Return `x` with a slice along `dim` replaced by `src`."""
        places = self._tf.range(self._tf.cast(size_of(self._tf, x, dim), self._tf.int64))
        places = places[slice(start, None if _is(end, END) else end)]
        front, behind = self._slice(kind, x, dim, None, places[0]), self._slice(kind, x, dim, places[-1] + 1)
        return self._tf.concat([front, self._tf.cast(src, kind), behind], axis=dim)

    def _squeeze(self, kind: DType, x: Tensor, dim: Any) -> Tensor:
        del kind
        axes = [dim] if isinstance(dim, int) else dim
        return self._tf.squeeze(x, [axis for axis in axes if x.shape[axis] == 1])

    def _repeat(self, kind: DType, x: Tensor, repeats: Sequence[Any]) -> Tensor:
        del kind
        for _ in range(len(repeats) - x.shape.rank):
            x = self._tf.expand_dims(x, 0)
        return self._tf.tile(x, as_shape(self._tf, repeats))

    def _pad(self, kind: DType, x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
        edges = [[pad[at], pad[at + 1]] for at in range(0, len(pad), 2)][::-1]
        whole = [[0, 0]] * (x.shape.rank - len(edges)) + edges
        return self._tf.pad(x, whole, constant_values=self._tf.cast(value, kind))

    def _diagonal(self, kind: DType, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        del kind
        rank = x.shape.rank
        last = [dim1 % rank, dim2 % rank]
        others = [axis for axis in range(rank) if axis not in last]
        return self._tf.linalg.diag_part(self._tf.transpose(x, [*others, *last]), k=offset)

    def _arange(
        self, kind: DType, start: float | Tensor, end: float | Tensor, step: float | Tensor = 1, **how: Any
    ) -> Tensor:
        del how
        counted = kind if kind.is_floating else self._tf.int64
        return self._tf.cast(self._tf.range(*(self._tf.cast(each, counted) for each in (start, end, step))), kind)
