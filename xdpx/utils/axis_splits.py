"""Choose the mesh axes that shard each dimension of an array, from the names of its dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

REPLICA, DATA, MDL, STAGE = "replica", "data", "mdl", "stage"
AXES = (REPLICA, DATA, MDL)
"""Copies of the model, shards of weights and batch (fully sharded data parallel), shards of each matrix (tensor)."""
MESH_AXES = (STAGE, *AXES)
"""Those of a mesh with pipeline stages; valid names even if a mesh lacks the axis."""
FILL = -1
"""As the size of an axis: the devices that the other axes leave."""

Rules = Sequence[tuple[str, str | tuple[str, ...] | None]]
"""Pairs (logical axis, mesh axes that shard it). The first pair with a name counts; None replicates the dimension."""


class UnknownAxis(ValueError):
    """The name of a dimension is neither in the rules nor an axis of a mesh.

    Attributes:
        axis: the name.
        known: the names allowed.
    """

    def __init__(self, axis: str, known: Sequence[str]) -> None:
        names = ", ".join(known)
        super().__init__(f"'{axis}' is neither a logical axis nor an axis of the mesh. Known: {names}.")
        self.axis, self.known = axis, list(known)


class Split(NamedTuple):
    """How one dimension is sharded.

    Attributes:
        taken: the mesh axes that split it.
        wanted: the mesh axes requested that no earlier dimension uses; `taken` is a prefix of it.
    """

    taken: tuple[str, ...]
    wanted: tuple[str, ...]

    @property
    def entry(self) -> str | tuple[str, ...] | None:
        """The entry of this dimension in a partition spec."""
        return self.taken[0] if len(self.taken) == 1 else self.taken or None


def splits(names: Iterable[Any], shape: Sequence[int], rules: Rules, sizes: Mapping[str, int]) -> list[Split]:
    """Return how each dimension of an array is sharded, as its name requests and its size allows.

    A mesh axis splits at most one dimension: the first that requests it. Of several axes for one dimension, the longest
    prefix whose product divides the size is used. Mesh axes that this mesh does not have are ignored.

    Args:
        names: one per dimension: a logical axis, a mesh axis, a tuple of them, or None. Dimensions beyond the names are
            not split.
        shape: of the array.
        rules: which mesh axes split which logical axis.
        sizes: of the mesh, by axis.

    Raises:
        UnknownAxis: a name is neither in the rules nor an axis of a mesh.
        ValueError: there are more names than dimensions.
    """
    given = tuple(names)
    if len(given) > len(shape):
        raise ValueError(f"has {len(shape)} dimensions, but {len(given)} names {list(given)}. Give one per dimension.")
    used: set[str] = set()
    found: list[Split] = []
    for size, name in zip(shape, given + (None,) * (len(shape) - len(given)), strict=True):
        wanted = tuple(axis for axis in axes_of(name, rules, sizes) if axis in sizes and axis not in used)
        taken = _dividing(size, wanted, sizes)
        used.update(taken)
        found.append(Split(taken, wanted))
    return found


def axes_of(name: Any, rules: Rules, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the mesh axes requested for a dimension of that name, including those that this mesh does not have."""
    if name is None:
        return ()
    if not isinstance(name, str):
        return tuple(axis for part in name for axis in axes_of(part, rules, sizes))
    for logical, axes in rules:
        if logical == name:
            return () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    if name in sizes or name in MESH_AXES:
        return (name,)
    raise UnknownAxis(name, list(dict.fromkeys([*(logical for logical, _ in rules), *sizes])))


def _dividing(size: int, axes: Sequence[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    kept, parts = 0, 1
    while kept < len(axes) and not size % (parts * sizes[axes[kept]]):
        parts *= sizes[axes[kept]]
        kept += 1
    return tuple(axes[:kept])
