"""Model FLOPs, counted: the matrix products of a forward pass, read off its jaxpr.

A product of (M, K) with (K, N) is 2·M·K·N FLOPs. A scanned body counts as often as it runs, which XLA's own
`cost_analysis` leaves out. What is computed again in the backward pass (remat) is not part of the model and never
counted; training is three times the forward pass, since the backward pass has two products for each. Looking a table
up by a product with one-hot rows costs FLOPs on the device but is a lookup to the model, as are the products that
move tokens to their experts and back: these are kept apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from xdpx.utils.scopes import MOVING_ROWS

TRAINING_FACTOR = 3
"""Forward pass once, backward pass twice: one product for the inputs' gradient, one for the weights'."""

_KEEPS_MARK = frozenset({"broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy",
                         "sharding_constraint", "expand_dims"})  # fmt: skip
_IOTA, _ONE_HOT = "iota", "one_hot"


@dataclass
class Count:
    """FLOPs of one function.

    Attributes:
        flops: of all matrix products and convolutions, one-hot lookups left out.
        lookup: of products whose one side is one-hot rows, or that only move rows (`scopes.MOVING_ROWS`).
        by_operation: `flops` by primitive.
        unknown: primitives that hide their work (custom kernels without a cost estimate, loops without a known
            length, which count once), and how often they were met.
    """

    flops: int = 0
    lookup: int = 0
    by_operation: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, other: Count, times: int = 1) -> None:
        """Add another count, multiplied by `times`."""
        self.flops += times * other.flops
        self.lookup += times * other.lookup
        for name, flops in other.by_operation.items():
            self.by_operation[name] += times * flops
        self.unknown.update(other.unknown)

    @property
    def training(self) -> int:
        """FLOPs of forward and backward pass of what was counted."""
        return TRAINING_FACTOR * self.flops


def count(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Count:
    """Count the FLOPs of `function` on arrays or `ShapeDtypeStruct`s. Nothing is computed or allocated."""
    jaxpr = jax.make_jaxpr(function)(*args, **kwargs)
    return count_jaxpr(jaxpr.jaxpr)


def count_jaxpr(jaxpr: Any) -> Count:
    """Count the FLOPs of an open jaxpr."""
    counted, _ = _walk(jaxpr, [None] * len(jaxpr.invars))
    return counted


def _walk(jaxpr: Any, marks_in: Sequence[str | None]) -> tuple[Count, list[str | None]]:
    """Count a jaxpr; `marks_in` says which of its inputs are an iota or one-hot rows. Returns marks of outputs, too."""
    marks: dict[Any, str | None] = dict(zip(jaxpr.invars, marks_in, strict=True))
    total = Count()
    for equation in jaxpr.eqns:
        seen = [None if hasattr(var, "val") else marks.get(var) for var in equation.invars]
        counted, outs = _equation(equation, seen)
        if MOVING_ROWS in str(equation.source_info.name_stack):
            counted = Count(lookup=counted.flops + counted.lookup, unknown=counted.unknown)
        total.add(counted)
        marks.update(zip(equation.outvars, outs, strict=True))
    return total, [None if hasattr(var, "val") else marks.get(var) for var in jaxpr.outvars]


def _equation(equation: Any, seen: list[str | None]) -> tuple[Count, list[str | None]]:
    name, params = equation.primitive.name, equation.params
    none: list[str | None] = [None] * len(equation.outvars)
    if name in _PRODUCTS:
        flops = _PRODUCTS[name](equation)
        if _ONE_HOT in seen:
            return Count(lookup=flops), none
        return Count(flops, by_operation=Counter({name: flops})), none
    if name in _CONTROL:
        return _CONTROL[name](equation, seen), none
    if name == "iota":
        return Count(), [_IOTA]
    if name == "eq":
        return Count(), [_ONE_HOT if _IOTA in seen else None]
    if name in _KEEPS_MARK:
        return Count(), [seen[0]]
    return _called(name, params, seen, none)


def _called(name: str, params: Mapping[str, Any], seen: list[str | None], none: list[str | None]) -> tuple[Count, Any]:
    """Count a call of another jaxpr (jit, remat, custom derivatives, shard_map), or a kernel."""
    if name == "pallas_call":
        return _kernel(name, params), none
    inner = next((_open(params[key]) for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
    if inner is None:
        return Count(), none
    given = seen if len(seen) == len(inner.invars) else [None] * len(inner.invars)
    counted, outs = _walk(inner, given)
    if name == "shard_map":  # its body has the shapes of one device
        sizes = dict(params["mesh"].shape)
        whole = Count()
        whole.add(counted, math.prod(sizes[axis] for axis in params.get("manual_axes", sizes)))
        return whole, none
    return counted, outs if len(outs) == len(none) else none


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _scan(equation: Any, seen: list[str | None]) -> Count:
    inner = _open(equation.params["jaxpr"])
    constants = equation.params["num_consts"]
    marks = [*seen[:constants], *[None] * (len(inner.invars) - constants)]
    total = Count()
    total.add(_walk(inner, marks)[0], equation.params["length"])
    return total


def _while(equation: Any, _: list[str | None]) -> Count:
    body = _open(equation.params["body_jaxpr"])
    counted = _walk(body, [None] * len(body.invars))[0]
    if counted.flops or counted.lookup:
        counted.unknown["while"] += 1
    return counted


def _cond(equation: Any, seen: list[str | None]) -> Count:
    branches = [_walk(_open(branch), seen[1:])[0] for branch in equation.params["branches"]]
    return max(branches, key=lambda one: one.flops)


def _dot(equation: Any) -> int:
    (contract, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * _size(equation.outvars[0]) * int(math.prod(left[axis] for axis in contract))


def _ragged_dot(equation: Any) -> int:
    """Count a product of grouped rows (mixture of experts): each row meets the matrix of its own group only."""
    return 2 * _size(equation.invars[0]) * int(equation.invars[1].aval.shape[-1])


def _convolution(equation: Any) -> int:
    numbers = equation.params["dimension_numbers"]
    kernel = equation.invars[1].aval.shape
    taps = int(math.prod(kernel[axis] for axis in numbers.rhs_spec[1:]))
    return 2 * _size(equation.outvars[0]) * taps


def _fused_attention(equation: Any) -> int:
    """Count cuDNN's attention in full, as if no mask were there: its products of queries, keys and values."""
    keys = equation.invars[1].aval.shape
    layout = equation.params.get("layout", 0)
    by_head = getattr(layout, "value", layout) == 1
    return 4 * _size(equation.invars[0]) * int(keys[2] if by_head else keys[1])


def _size(variable: Any) -> int:
    return int(math.prod(variable.aval.shape))


def _kernel(name: str, params: Mapping[str, Any]) -> Count:
    estimate = getattr(params.get("cost_estimate"), "flops", None)
    if estimate is None:
        return Count(unknown=Counter({name: 1}))
    return Count(int(estimate), by_operation=Counter({name: int(estimate)}))


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "dot_general": _dot, "ragged_dot": _ragged_dot, "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _convolution, "dot_product_attention_fwd": _fused_attention,
    "dot_product_attention_fwd_wrapper": _fused_attention,
}  # fmt: skip
_CONTROL: dict[str, Callable[[Any, list[str | None]], Count]] = {"scan": _scan, "while": _while, "cond": _cond}
