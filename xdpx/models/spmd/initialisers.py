"""Initialisation of weights: a method, a scale, and the dimension that reduces the scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xdpx.config.faults import did_you_mean, refusal
from xdpx.config.hparams import BaseHParams

_KINDS = ("gaussian", "truncated_gaussian", "uniform")
_BY = ("sqrt_dim", "sqrt_fanin", "sqrt_fanout", "sqrt_fanavg")
METHODS = (
    "constant",
    "xavier",
    "xavier_fixup",
    "uniform_unit_scaling",
    "delta_orthogonal",
    *_KINDS,
    *(f"{kind}_{by}" for kind in _KINDS for by in _BY),
)
"""All methods. `sqrt_dim` divides the scale by the root of the first dimension, the others by fan-in, -out, average."""


class WeightInit(BaseHParams):
    """Initialisation of a weight: `WeightInit.Gaussian(0.02)`, `WeightInit(method="uniform_sqrt_fanin", scale=1.0)`."""

    method: str = "xavier"
    scale: float = 1.0

    @classmethod
    def of(cls, method: str, scale: float = 1.0) -> WeightInit:
        """Return a frozen initialisation. Raises ConfigError for an unknown method."""
        _refuse_unknown(method)
        return cls(method=method, scale=scale).freeze()

    @classmethod
    def Constant(cls, scale: float = 0.0) -> WeightInit:
        """All equal to `scale`."""
        return cls.of("constant", scale)

    @classmethod
    def Gaussian(cls, scale: float = 1.0) -> WeightInit:
        """Normal with standard deviation `scale`."""
        return cls.of("gaussian", scale)

    @classmethod
    def TruncatedGaussian(cls, scale: float = 1.0) -> WeightInit:
        """Normal, truncated at two standard deviations."""
        return cls.of("truncated_gaussian", scale)

    @classmethod
    def Uniform(cls, scale: float = 1.0) -> WeightInit:
        """Uniform in [-scale, scale]."""
        return cls.of("uniform", scale)

    @classmethod
    def Xavier(cls, scale: float = 1.0) -> WeightInit:
        """Uniform in scale * sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio, AISTATS 2010, equation 16."""
        return cls.of("xavier", scale)

    @classmethod
    def GaussianSqrtDim(cls, scale: float = 1.0) -> WeightInit:
        """Normal with standard deviation scale / sqrt(first dimension)."""
        return cls.of("gaussian_sqrt_dim", scale)

    @classmethod
    def GaussianSqrtFanIn(cls, scale: float = 1.0) -> WeightInit:
        """Normal with standard deviation scale / sqrt(fan_in)."""
        return cls.of("gaussian_sqrt_fanin", scale)

    @classmethod
    def UniformUnitScaling(cls, scale: float = 1.0) -> WeightInit:
        """Uniform in scale * sqrt(3 / product of all dimensions but the last)."""
        return cls.of("uniform_unit_scaling", scale)


def _refuse_unknown(method: str) -> None:
    if method not in METHODS:
        remedy = did_you_mean(method, METHODS, rest=f"Methods: {', '.join(METHODS)}.")
        raise refusal("WeightInit", f"no method '{method}'.", remedy)


def fans(shape: Sequence[int], num_in: int = 1, num_batch: int = 0) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight whose dimensions are batch, in, out.

    Args:
        shape: of the weight; one dimension counts as both fans.
        num_in: number of input dimensions, after the batch ones.
        num_batch: number of leading dimensions that index independent weights (the three of a combined QKV).
    """
    inner = list(shape)[num_batch:]
    if len(inner) < 2:
        size = inner[0] if inner else 1
        return size, size
    return math.prod(inner[:num_in]), math.prod(inner[num_in:])


def draw(init: WeightInit, *, num_in: int = 1, num_batch: int = 0) -> Callable[[Any, Sequence[int], Any], jax.Array]:
    """Return `function(key, shape, dtype)` that initialises a weight. Raises ConfigError for an unknown method."""
    _refuse_unknown(init.method)

    def drawn(key: jax.Array, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
        return _draw(init, key, tuple(shape), dtype, fans(shape, num_in, num_batch))

    return drawn


def _draw(
    init: WeightInit, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike, fan: tuple[int, int]
) -> jax.Array:
    method, scale = init.method, init.scale
    if method == "constant":
        return jnp.full(shape, scale, dtype)
    if method == "delta_orthogonal":
        return jax.nn.initializers.delta_orthogonal(scale)(key, shape, dtype)
    if method.startswith("xavier"):
        fixup = 1.0 / math.sqrt(2.0) if method == "xavier_fixup" else 1.0
        return _drawn("uniform", key, shape, dtype, fixup * scale * math.sqrt(6.0 / sum(fan)))
    if method == "uniform_unit_scaling":
        return _drawn("uniform", key, shape, dtype, scale * math.sqrt(3.0 / max(1, math.prod(shape[:-1]))))
    kind = next(kind for kind in ("truncated_gaussian", "gaussian", "uniform") if method.startswith(kind))
    return _drawn(kind, key, shape, dtype, scale / math.sqrt(_shrink(method, shape, fan)))


def _shrink(method: str, shape: tuple[int, ...], fan: tuple[int, int]) -> float:
    sizes = {
        "sqrt_dim": float(shape[0]) if shape else 1.0,
        "sqrt_fanin": float(fan[0]),
        "sqrt_fanout": float(fan[1]),
        "sqrt_fanavg": sum(fan) / 2.0,
    }
    return next((size for suffix, size in sizes.items() if method.endswith(suffix)), 1.0)


def _drawn(kind: str, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike, scale: float) -> jax.Array:
    if kind == "uniform":
        return jax.random.uniform(key, shape, dtype, -scale, scale)
    if kind == "truncated_gaussian":
        return scale * jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)
    return scale * jax.random.normal(key, shape, dtype)
