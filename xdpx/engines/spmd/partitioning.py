"""From names of dimensions to places on the mesh: which device holds which part of a weight, a state or a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from flax.core import meta
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, did_you_mean
from xdpx.utils.axis_splits import Rules, Split, UnknownAxis, axes_of, splits

Report = Callable[[str], object]
"""Takes a sentence about a dimension that is not split although its rule says so."""


def silent(_: str) -> None:
    """Report nothing."""


def without_boxes(tree: Any) -> Any:
    """Return a tree with the values themselves where flax has boxed them with the names of their dimensions."""
    return jax.tree.map(_opened, tree, is_leaf=_is_box)


def logical_axes(tree: Any) -> Any:
    """Return the names of the dimensions of each leaf of a boxed tree, as a `PartitionSpec`; empty without names."""
    return jax.tree.map(lambda leaf: PartitionSpec(*_names_of(leaf)), tree, is_leaf=_is_box)


def shardings(tree: Any, rules: Rules, mesh: Mesh, *, report: Report = silent) -> Any:
    """Return the sharding of each leaf of a tree.

    Args:
        tree: of arrays or `ShapeDtypeStruct`, boxed by `nn.with_logical_partitioning`; what is not boxed is replicated.
        rules: which mesh axes split which logical axis.
        mesh: the grid of devices.
        report: called for each dimension that cannot be split evenly, and is replicated therefore.

    Returns:
        The same tree, without boxes, of `NamedSharding`.
    """
    return shardings_of(without_boxes(tree), logical_axes(tree), rules, mesh, report=report)


def shardings_of(shapes: Any, axes: Any, rules: Rules, mesh: Mesh, *, report: Report = silent) -> Any:
    """Return the sharding of each leaf of `shapes`; `axes` names the dimensions of each leaf or of a whole branch.

    Args:
        shapes: a tree of arrays or `ShapeDtypeStruct`.
        axes: names per leaf: a tuple, a `PartitionSpec`, or None, which replicates.
        rules: which mesh axes split which logical axis.
        mesh: the grid of devices.
        report: called for each dimension that is not split as its rule says.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    structure: Any = tree
    named = structure.flatten_up_to(axes)
    placed = [
        NamedSharding(mesh, spec_of(leaf.shape, names or (), rules, mesh, report=report, name=path_name(path)))
        for (path, leaf), names in zip(leaves, named, strict=True)
    ]
    return jax.tree.unflatten(structure, placed)


def spec_of(
    shape: Sequence[int],
    names: Iterable[Any],
    rules: Rules,
    mesh: Mesh,
    *,
    report: Report = silent,
    name: str = "",
) -> PartitionSpec:
    """Return the mesh axes that split each dimension of one array.

    What the rules ask for and the size does not allow is reported; see `axis_splits.splits`.

    Args:
        shape: of the array.
        names: one per dimension: a logical axis, a mesh axis, a tuple of mesh axes, or None.
        rules: which mesh axes split which logical axis.
        mesh: the grid of devices.
        report: called for each dimension that is not split as its rule says.
        name: of the array, for the report.

    Raises:
        ConfigError: a name is neither in the rules nor an axis of a mesh.
    """
    given, spec = tuple(names), []
    for dim, split in enumerate(_splits(shape, given, rules, mesh, name)):
        if len(split.taken) < len(split.wanted):
            asked = " x ".join(f"{axis} {mesh.shape[axis]}" for axis in split.wanted)
            rest = f"only {' x '.join(split.taken)} splits it" if split.taken else "every device keeps it whole"
            report(
                f"{name or 'an array'}: dimension {dim} ('{given[dim]}') of size {shape[dim]} is not divided by "
                f"{asked}: {rest}."
            )
        spec.append(split.entry)
    while spec and spec[-1] is None:
        spec.pop()
    return PartitionSpec(*spec)


def rules_on(mesh: Mesh, rules: Rules) -> tuple[tuple[str, str | tuple[str, ...] | None], ...]:
    """Return rules that name only axes which this mesh has."""
    return tuple((logical, _short(_present(axes, mesh))) for logical, axes in rules)


def batch_axes(rules: Rules, mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes that split the rows of a batch."""
    return tuple(axis for axis in axes_of("batch", rules, mesh.shape) if axis in mesh.shape)


def batch_sharding(rows: int, rules: Rules, mesh: Mesh, *, report: Report = silent) -> NamedSharding:
    """Return the sharding of a batch's rows: split over the batch axes, or over fewer or none if uneven."""
    return NamedSharding(mesh, spec_of((rows,), ("batch",), rules, mesh, report=report, name="the batch"))


def idle_axes(placed: Iterable[NamedSharding], rules: Rules, mesh: Mesh) -> list[str]:
    """Return the axes with several devices, as `mdl 4`, that split neither these arrays nor the rows of a batch."""
    used = set(batch_axes(rules, mesh))
    for where in placed:
        used.update(*((entry,) if isinstance(entry, str) else entry or () for entry in where.spec))
    return [f"{axis} {size}" for axis, size in mesh.shape.items() if size > 1 and axis not in used]


def infeed(rules: Rules, mesh: Mesh, process: int | None = None) -> tuple[int, int]:
    """Return (index, count) of the input that a process reads: processes that hold the same rows read the same.

    Args:
        rules: which mesh axes split the rows.
        mesh: the grid of devices.
        process: its index; by default this process.
    """
    me = jax.process_index() if process is None else process
    axes = batch_axes(rules, mesh)
    rows = prod(mesh.shape[axis] for axis in axes)
    held: dict[int, set[int]] = {}
    places: Any = NamedSharding(mesh, PartitionSpec(axes)).devices_indices_map((rows,))
    for device, index in places.items():
        held.setdefault(device.process_index, set()).update(range(rows)[index[0]])
    groups = sorted({tuple(sorted(part)) for part in held.values()})
    if sum(map(len, groups)) != rows:
        raise ValueError(
            f"mesh {dict(mesh.shape)}: the rows that processes hold overlap in part, so no input can feed them. Let "
            "the batch axes (replica, data) go across processes before the others do."
        )
    return groups.index(tuple(sorted(held[me]))), len(groups)


def path_name(path: Iterable[Any]) -> str:
    """Return the name of a leaf: the keys that lead to it, with `/` between them."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def bytes_per_device(shapes: Any, placed: Any) -> int:
    """Return how many bytes of a tree one device holds."""
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True)
    return sum(
        int(np.prod(where.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize for leaf, where in pairs
    )


def _is_box(leaf: object) -> bool:
    return isinstance(leaf, meta.AxisMetadata)


def _opened(leaf: Any) -> Any:
    # Not `unbox`, which may lay a constraint on the value.
    while _is_box(leaf):
        leaf = leaf.value
    return leaf


def _names_of(leaf: object) -> tuple[Any, ...]:
    return tuple(getattr(leaf, "names", ())) if _is_box(leaf) else ()


def _splits(shape: Sequence[int], names: Sequence[Any], rules: Rules, mesh: Mesh, name: str) -> list[Split]:
    try:
        return splits(names, shape, rules, mesh.shape)
    except UnknownAxis as unknown:
        rest = f"Add one, or use one of: {', '.join(unknown.known)}."
        problem = f"no rule says which axes of the mesh split '{unknown.axis}'."
        fault = Fault("rules", problem, did_you_mean(unknown.axis, unknown.known, rest=rest))
        raise ConfigError(THIS_RUN, [fault]) from unknown
    except ValueError as error:
        raise ValueError(f"{name or 'an array'}: {error}") from error


def _present(axes: str | Sequence[str] | None, mesh: Mesh) -> tuple[str, ...]:
    given = () if axes is None else (axes,) if isinstance(axes, str) else axes
    return tuple(axis for axis in given if axis in mesh.shape)


def _short(axes: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return axes[0] if len(axes) == 1 else axes or None
