"""Logical axis names of weights and activations, and the tables that map them to the axes of a mesh."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import Mesh, PartitionSpec

Axis = str | tuple[str, ...] | None
"""One dimension: a logical axis, a mesh axis, several mesh axes, or None for a dimension that is never split."""

Axes = tuple[Axis, ...]

Rules = tuple[tuple[str, str | tuple[str, ...] | None], ...]
"""(logical axis, mesh axes); the first rule for a name holds. A name without a rule that is a mesh axis is itself."""

REPLICA, DATA, MDL, STAGE = "replica", "data", "mdl", "stage"

TRANSFORMER_RULES: Rules = (
    ("batch", (REPLICA, DATA)),
    ("length", None),
    ("embed", DATA),
    ("mlp", MDL),
    ("heads", MDL),
    ("vocab", MDL),
    ("expert", MDL),
    ("kv", None),
    ("norm", None),
    ("layers", None),
    (STAGE, None),
    ("activation_batch", (REPLICA, DATA)),
    ("activation_length", None),
    ("activation_embed", None),
    ("activation_mlp", MDL),
    ("activation_heads", MDL),
    ("activation_kv", None),
    ("activation_vocab", MDL),
    ("activation_expert", MDL),
)
"""For meshes (replica, data, mdl): weights are split over data and mdl, rows over replica and data."""

PIPELINE_RULES: Rules = ((STAGE, STAGE), *(rule for rule in TRANSFORMER_RULES if rule[0] != STAGE))
"""For meshes (stage, replica, data, mdl): what is stacked by stage lives with its stage."""


_hidden: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("hidden", default=frozenset())


@contextlib.contextmanager
def placed(mesh: Mesh, rules: Rules = TRANSFORMER_RULES) -> Generator[None]:
    """Make `constrain` hold for a mesh while a program is traced inside. The mesh needs Auto axes."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(rules):
        yield


@contextlib.contextmanager
def without_mesh_axes(*names: str) -> Generator[None]:
    """Let no constraint inside name these mesh axes: `jax.vmap(spmd_axis_name=stage)` refuses its own axis."""
    token = _hidden.set(_hidden.get() | frozenset(names))
    try:
        yield
    finally:
        _hidden.reset(token)


def constrain(x: jax.Array, axes: Sequence[Axis]) -> jax.Array:
    """Ask that an activation be split along logical axes. Without a mesh or rules, gives `x` as it is.

    Args:
        x: any array.
        axes: one entry per dimension, such as `("activation_batch", "activation_length", "activation_embed")`.
    """
    mesh, rules = jax.sharding.get_abstract_mesh(), nn.get_logical_axis_rules()
    if mesh.empty or not rules:
        return x
    sizes = {name: size for name, size in mesh.shape.items() if name not in _hidden.get()}
    spec, _ = resolve(axes, x.shape, tuple(rules), sizes)
    constraint: Any = jax.lax.with_sharding_constraint
    constrained: jax.Array = constraint(x, spec)
    return constrained


def resolve(
    axes: Sequence[Axis], shape: Sequence[int], rules: Rules, mesh_shape: Mapping[str, int]
) -> tuple[PartitionSpec, list[str]]:
    """Turn logical axes into a partition spec that the shape allows.

    A mesh axis is used for one dimension at most: the first that asks for it gets it. A dimension that the mesh axes
    do not divide keeps the ones that do, from the left, and is reported.

    Args:
        axes: one entry per dimension; further dimensions are not split.
        shape: of the array.
        rules: logical axis to mesh axes.
        mesh_shape: size by mesh axis.

    Returns:
        (spec, sentences about dimensions that could not be split as asked).

    Raises:
        ValueError: an entry is neither a logical axis of the rules nor an axis of the mesh, or there are too many.
    """
    if len(axes) > len(shape):
        raise ValueError(
            f"{len(axes)} axes {tuple(axes)} for an array of shape {tuple(shape)}: give one per dimension."
        )
    table = dict(reversed(rules))
    used: set[str] = set()
    entries: list[Any] = []
    reports: list[str] = []
    for index, axis in enumerate(axes):
        wanted = [n for n in _mesh_axes(axis, table, mesh_shape) if n in mesh_shape and n not in used]
        taken = _dividing(shape[index], wanted, mesh_shape)
        if len(taken) < len(wanted):
            parts = " x ".join(f"{name}={mesh_shape[name]}" for name in wanted)
            reports.append(f"dimension {index} ({axis}) of size {shape[index]} is not divided by {parts}")
        used.update(taken)
        entries.append(None if not taken else taken[0] if len(taken) == 1 else tuple(taken))
    spec: Any = PartitionSpec
    return spec(*entries), reports


def _mesh_axes(axis: Axis, table: Mapping[str, Any], mesh_shape: Mapping[str, int]) -> tuple[str, ...]:
    if axis is None:
        return ()
    if isinstance(axis, tuple):
        return tuple(name for part in axis for name in _mesh_axes(part, table, mesh_shape))
    if axis in table:
        found = table[axis]
        return () if found is None else (found,) if isinstance(found, str) else tuple(found)
    if axis in mesh_shape or axis in {REPLICA, DATA, MDL, STAGE}:
        return (axis,)
    known = ", ".join(dict.fromkeys([*table, *mesh_shape]))
    raise ValueError(f"'{axis}' is neither a logical axis nor an axis of the mesh. Known: {known}.")


def _dividing(size: int, names: Sequence[str], mesh_shape: Mapping[str, int]) -> list[str]:
    taken: list[str] = []
    parts = 1
    for name in names:
        if size % (parts * mesh_shape[name]):
            break
        taken.append(name)
        parts *= mesh_shape[name]
    return taken


def axes_from_mapping(mapping: Sequence[Any], mesh_axis_names: Sequence[str] = (REPLICA, DATA, MDL)) -> Axes:
    """Read a split mapping: entries are an axis name, a tuple of names, an index into the mesh axes, -1 or None."""
    axes: list[Axis] = []
    for entry in mapping:
        if entry is None or (isinstance(entry, int) and entry < 0):
            axes.append(None)
        elif isinstance(entry, int):
            axes.append(mesh_axis_names[entry])
        else:
            axes.append(entry if isinstance(entry, str) else tuple(entry))
    return tuple(axes)
