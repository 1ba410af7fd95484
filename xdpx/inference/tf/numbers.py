"""Elementwise torch operations and reductions in TensorFlow, which does not promote types."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.inference.tf.shapes import Operation, size_of

if TYPE_CHECKING:
    from tensorflow import DType, Tensor

ALIKE = ("floor", "ceil", "round", "exp", "sqrt", "tanh", "sin", "cos", "abs", "sigmoid", "log", "log1p", "rsqrt",
         "erf", "expm1", "reciprocal", "sign")  # fmt: skip
"""Operations with the same name in both."""


class Numbers:
    """Arithmetic, comparisons, logic, reductions."""

    def __init__(self, tf: ModuleType) -> None:
        self._tf = tf

    def table(self) -> dict[str, Operation]:
        """Return {name of the torch operation: TensorFlow function}."""
        return {**self._of_one(), **self._of_two(), **self._comparisons(), **self._logic(), **self._reductions()}

    def _of_one(self) -> dict[str, Operation]:
        tf = self._tf

        def one(call: Operation) -> Operation:
            return lambda kind, x: call(tf.cast(x, kind))

        return {
            **{name: one(getattr(tf.math, name)) for name in ALIKE},
            "neg": one(tf.negative),
            "relu": one(tf.nn.relu),
            "isnan": lambda kind, x: tf.math.is_nan(x),
            "isinf": lambda kind, x: tf.math.is_inf(x),
            "clamp": self._clamp,
            "cumsum": lambda kind, x, dim, **how: tf.cumsum(tf.cast(x, kind), axis=dim),
        }

    def _of_two(self) -> dict[str, Operation]:
        tf = self._tf

        def two(call: Operation) -> Operation:
            return lambda kind, a, b: call(tf.cast(a, kind), tf.cast(b, kind))

        return {
            "add": lambda kind, a, b, alpha=1: tf.cast(a, kind) + tf.cast(b, kind) * tf.cast(alpha, kind),
            "sub": lambda kind, a, b, alpha=1: tf.cast(a, kind) - tf.cast(b, kind) * tf.cast(alpha, kind),
            "mul": two(tf.multiply),
            "div": self._div,
            "pow": two(tf.pow),
            "maximum": two(tf.maximum),
            "minimum": two(tf.minimum),
            "remainder": two(tf.math.floormod),
            "fmod": two(tf.truncatemod),
        }

    def _div(self, kind: DType, a: float | Tensor, b: float | Tensor, *, rounding_mode: str | None = None) -> Tensor:
        a, b = self._tf.cast(a, kind), self._tf.cast(b, kind)
        if rounding_mode is None:
            return a / b
        if rounding_mode == "floor":
            return self._tf.math.floordiv(a, b)
        if kind.is_floating:
            raise NotImplementedError("division cut off")
        return self._tf.truncatediv(a, b)

    def _clamp(
        self,
        kind: DType,
        x: Tensor,
        low: float | Tensor | None = None,
        high: float | Tensor | None = None,
        **by_name: Any,
    ) -> Tensor:
        low, high = by_name.get("min", low), by_name.get("max", high)
        x = self._tf.cast(x, kind)
        x = x if low is None else self._tf.maximum(x, self._tf.cast(low, kind))
        return x if high is None else self._tf.minimum(x, self._tf.cast(high, kind))

    def _comparisons(self) -> dict[str, Operation]:
        tf = self._tf
        calls = {"eq": tf.equal, "ne": tf.not_equal, "lt": tf.less, "le": tf.less_equal, "gt": tf.greater}
        calls["ge"] = tf.greater_equal

        def compared(call: Operation) -> Operation:
            return lambda kind, a, b: call(*self._common(a, b))

        return {name: compared(call) for name, call in calls.items()}

    def _common(self, a: Any, b: Any) -> tuple[Tensor, Tensor]:
        """Return two operands in one dtype, as torch promotes them: booleans to integers, integers to floats."""
        tf = self._tf
        kinds = [each.dtype for each in (a, b) if tf.is_tensor(each)]
        kind = max(kinds, key=lambda each: (each.is_floating, 0 if each == tf.bool else each.size))
        if not kind.is_floating and any(isinstance(each, float) for each in (a, b)):
            kind = tf.float32
        return tf.cast(a, kind), tf.cast(b, kind)

    def _logic(self) -> dict[str, Operation]:
        tf = self._tf
        calls = {"and": tf.logical_and, "or": tf.logical_or, "xor": tf.math.logical_xor}

        def of_truths(call: Operation) -> Operation:
            return lambda kind, a, b: call(tf.cast(a, tf.bool), tf.cast(b, tf.bool))

        def of_bits(call: Operation, bits: Operation) -> Operation:
            return lambda kind, a, b: (call if kind == tf.bool else bits)(tf.cast(a, kind), tf.cast(b, kind))

        return {
            **{f"logical_{name}": of_truths(call) for name, call in calls.items()},
            **{
                f"bitwise_{name}": of_bits(call, getattr(tf.bitwise, f"bitwise_{name}")) for name, call in calls.items()
            },
            "logical_not": lambda kind, x: tf.logical_not(tf.cast(x, tf.bool)),
            "bitwise_not": lambda kind, x: tf.logical_not(x) if kind == tf.bool else tf.bitwise.invert(x),
        }

    def _reductions(self) -> dict[str, Operation]:
        tf = self._tf

        def over(call: Operation) -> Operation:
            def reduced(kind: DType, x: Tensor, dim: Any = None, keepdim: bool = False, **how: Any) -> Tensor:
                del how
                return call(tf.cast(x, kind), axis=None if dim == [] else dim, keepdims=keepdim)

            return reduced

        calls = {"sum": tf.reduce_sum, "mean": tf.reduce_mean, "prod": tf.reduce_prod, "amax": tf.reduce_max}
        calls |= {"amin": tf.reduce_min, "any": tf.reduce_any, "all": tf.reduce_all}
        return {
            **{name: over(call) for name, call in calls.items()},
            "var": self._var,
            "linalg_vector_norm": self._norm,
        }

    def _var(
        self, kind: DType, x: Tensor, dim: Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
    ) -> Tensor:
        axes = list(range(x.shape.rank)) if dim is None else list(dim)
        count = self._tf.reduce_prod([self._tf.cast(size_of(self._tf, x, axis), kind) for axis in axes])
        found = self._tf.math.reduce_variance(x, axis=axes, keepdims=keepdim)
        return found * count / (count - correction)

    def _norm(
        self, kind: DType, x: Tensor, power: float = 2, dim: Any = None, keepdim: bool = False, **how: Any
    ) -> Tensor:
        if how.get("ord", power) != 2:
            raise NotImplementedError(f"the norm {power}")
        return self._tf.sqrt(self._tf.reduce_sum(self._tf.square(self._tf.cast(x, kind)), axis=dim, keepdims=keepdim))
