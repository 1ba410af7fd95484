"""Torch operations that are whole layers, in TensorFlow. B batch, T positions, C channels, H hidden size."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.inference.tf.shapes import Operation

if TYPE_CHECKING:
    from tensorflow import DType, Tensor


class Layers:
    """Matrix products, normalisation, activation, convolution, pooling and recurrence."""

    def __init__(self, tf: ModuleType) -> None:
        self._tf = tf

    def table(self) -> dict[str, Operation]:
        """Return {name of the torch operation: TensorFlow function}."""
        tf = self._tf
        return {
            "mm": lambda kind, a, b: tf.matmul(a, b),
            "bmm": lambda kind, a, b: tf.matmul(a, b),
            "addmm": self._addmm,
            "gelu": lambda kind, x, approximate="none": tf.nn.gelu(x, approximate=approximate == "tanh"),
            "leaky_relu": lambda kind, x, slope=0.01: tf.nn.leaky_relu(x, slope),
            "_softmax": lambda kind, x, dim, half: tf.nn.softmax(tf.cast(x, kind), axis=dim),
            "_log_softmax": lambda kind, x, dim, half: tf.nn.log_softmax(tf.cast(x, kind), axis=dim),
            "native_layer_norm": self._layer_norm,
            "_cdist_forward": self._distances,
            "_embedding_bag_forward_only": self._bags,
            "_embedding_bag": self._bags,
            "convolution": self._convolution,
            "max_pool2d_with_indices": self._max_pool,
            "lstm": self._lstm,
            "gru": self._gru,
        }

    def _addmm(self, kind: DType, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        del kind
        product = self._tf.matmul(a, b)
        product = product if alpha == 1 else product * alpha
        return product + (bias if beta == 1 else bias * beta)

    def _layer_norm(
        self, kind: DType, x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Any:
        del kind
        tf, axes = self._tf, list(range(-len(shape), 0))
        mean = tf.reduce_mean(x, axis=axes, keepdims=True)
        rate = tf.math.rsqrt(tf.reduce_mean(tf.math.squared_difference(x, mean), axis=axes, keepdims=True) + eps)
        found = (x - mean) * rate
        found = found if weight is None else found * weight
        return found if bias is None else found + bias, mean, rate

    def _distances(self, kind: DType, a: Tensor, b: Tensor, power: float, mode: Any) -> Tensor:
        """Return Euclidean distances (..., A, B) between rows of (..., A, D) and (..., B, D)."""
        del kind, mode
        if power != 2:
            raise NotImplementedError(f"the distance {power}")
        squared = self._tf.math.squared_difference(a[..., :, None, :], b[..., None, :, :])
        return self._tf.sqrt(self._tf.reduce_sum(squared, axis=-1))

    def _bags(self, kind: DType, table: Tensor, indices: Tensor, offsets: Tensor, *how: Any) -> Any:
        """Return the sum of table rows for each bag, and None for the results that only training needs.

        `how`: whether gradients are scaled, the mode (0: sum), whether they are sparse, the weights of the rows, ...
        """
        del kind
        tf = self._tf
        mode, weights = how[1] if len(how) > 1 else 0, how[3] if len(how) > 3 else None
        if mode != 0:
            raise NotImplementedError("means or largest values of bags")
        rows = tf.gather(table, indices)
        rows = rows if weights is None else rows * weights[:, None]
        bags = tf.searchsorted(offsets, tf.range(tf.size(indices, offsets.dtype)), side="right") - 1
        return tf.math.unsorted_segment_sum(rows, bags, tf.size(offsets)), None, None, None

    # ---- windows

    def _convolution(self, kind: DType, x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
        """Return the convolution (B, C', ...) of (B, C, ...) with weights (C', C, ...); on a CPU channels must be last.

        `how`: stride, padding, dilation, whether it is transposed, padding of the output, number of groups.
        """
        del kind
        stride, padding, dilation, transposed, _, groups = how
        if transposed or groups != 1:
            raise NotImplementedError("transposed, or in groups")
        tf, inner = self._tf, list(range(2, 2 + len(stride)))
        last = tf.pad(tf.transpose(x, [0, *inner, 1]), _edges(padding))
        weight = tf.transpose(weight, [*inner, 1, 0])
        found = tf.nn.convolution(last, weight, strides=stride, padding="VALID", dilations=dilation)
        found = found if bias is None else found + bias
        return tf.transpose(found, [0, len(inner) + 1, *range(1, len(inner) + 1)])

    def _max_pool(self, kind: DType, x: Tensor, size: Any, stride: Any = (), padding: Any = (0, 0), *how: Any) -> Any:
        """Return the largest value of each window, (B, C, H', W'), and None for its position.

        `how`: dilation, and whether windows reach beyond the end.
        """
        if how and (any(each != 1 for each in how[0]) or any(how[1:])):
            raise NotImplementedError("dilated windows, or windows beyond the end")
        tf = self._tf
        last = tf.pad(tf.transpose(x, [0, 2, 3, 1]), _edges(padding), constant_values=kind[0].min)
        found = tf.nn.max_pool2d(last, size, stride or size, "VALID")
        return tf.transpose(found, [0, 3, 1, 2]), None

    # ---- recurrence: the operations of recurrence.py

    def _lstm(
        self, kind: DType, x: Tensor, into: Tensor, recurrent: Tensor, bias_into: Tensor, bias_recurrent: Tensor
    ) -> Tensor:
        """Return (B, T, H) of (B, T, C).

        Source: the formulas of torch.nn.LSTM: gates in the order input, forget, cell, output.
        """
        tf = self._tf

        def step(state: tuple[Tensor, ...], share: Tensor) -> tuple[Tensor, ...]:
            hidden, cell = state
            gates = share + tf.matmul(hidden, recurrent, transpose_b=True) + bias_recurrent
            taken, kept, new, out = tf.split(gates, 4, axis=-1)
            cell = tf.sigmoid(kept) * cell + tf.sigmoid(taken) * tf.tanh(new)
            return tf.sigmoid(out) * tf.tanh(cell), cell

        return self._along_texts(step, 2, kind, x, into, bias_into)

    def _gru(
        self, kind: DType, x: Tensor, into: Tensor, recurrent: Tensor, bias_into: Tensor, bias_recurrent: Tensor
    ) -> Tensor:
        """Return (B, T, H) of (B, T, C).

        Source: the formulas of torch.nn.GRU: gates in the order reset, update, new.
        """
        tf = self._tf

        def step(state: tuple[Tensor, ...], share: Tensor) -> tuple[Tensor, ...]:
            (hidden,) = state
            seen = tf.matmul(hidden, recurrent, transpose_b=True) + bias_recurrent
            (reset_x, update_x, new_x), (reset, update, new) = tf.split(share, 3, axis=-1), tf.split(seen, 3, axis=-1)
            update = tf.sigmoid(update_x + update)
            return ((1 - update) * tf.tanh(new_x + tf.sigmoid(reset_x + reset) * new) + update * hidden,)

        return self._along_texts(step, 1, kind, x, into, bias_into)

    def _along_texts(
        self, step: Operation, num_states: int, kind: DType, x: Tensor, into: Tensor, bias: Tensor
    ) -> Tensor:
        """Return the hidden state after each position, (B, T, H); states begin with zeros."""
        tf = self._tf
        shares = tf.tensordot(tf.transpose(x, [1, 0, 2]), tf.transpose(into), 1) + bias
        gates = {2: 4, 1: 3}[num_states]
        zeros = tf.zeros([tf.shape(x)[0], into.shape[0] // gates], kind)
        return tf.transpose(tf.scan(step, shares, (zeros,) * num_states)[0], [1, 0, 2])


def _edges(padding: Sequence[int]) -> list[list[int]]:
    """Return the padding before and after each axis of (B, ..., C)."""
    return [[0, 0], *([each, each] for each in padding), [0, 0]]
