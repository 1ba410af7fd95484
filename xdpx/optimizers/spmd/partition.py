"""Sharding of the optimizer state: each leaf like the weight it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import PartitionSpec

from xdpx.optimizers.spmd.trees import weight_of

Axes = tuple[Any, ...]
"""The logical name of each axis of an array; None for an axis that is never sharded."""

STACKED = ("layers", "stage")
"""Logical names of axes along which layers are stacked."""


def is_axes(leaf: object) -> bool:
    """Return whether a node of a pytree is the axes of one array, rather than a tuple of pytrees."""
    if leaf is None or isinstance(leaf, PartitionSpec):
        return True
    return isinstance(leaf, tuple) and not hasattr(leaf, "_fields") and all(_is_name(part) for part in leaf)


def _is_name(part: Any) -> bool:
    return part is None or isinstance(part, str) or (isinstance(part, tuple) and all(map(_is_name, part)))


def depth_of(axes: Any) -> int:
    """Return the number of leading axes along which layers are stacked."""
    depth = 0
    for axis in axes or ():
        if axis not in STACKED:
            break
        depth += 1
    return depth


def axes_of_state(state: Any, weights: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a pytree like `state` with the axes of every leaf.

    A leaf that lacks one axis of its weight (a factored moment) has the axes of the others. If its shape does not show
    which one it lacks, or it belongs to no weight, like a count, it is replicated.

    Args:
        state: arrays or shapes.
        weights: axes of each weight, by name.
        shapes: of the weights, by name.
    """

    def axes(path: Any, leaf: Any) -> Axes:
        name = weight_of(path, shapes)
        return () if name is None else _fitting(tuple(leaf.shape), shapes[name], tuple(weights[name] or ()))

    return jax.tree_util.tree_map_with_path(axes, state)


def _fitting(shape: tuple[int, ...], whole: tuple[int, ...], axes: Axes) -> Axes:
    axes = axes + (None,) * (len(whole) - len(axes))
    if shape == whole:
        return axes
    lacking = [axis for axis in range(len(whole)) if shape == whole[:axis] + whole[axis + 1 :]]
    if len(lacking) != 1:
        return (None,) * len(shape)
    return axes[: lacking[0]] + axes[lacking[0] + 1 :]
