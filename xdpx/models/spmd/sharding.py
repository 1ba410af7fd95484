"""Logical axis names of weights and activations, and rules that map them to mesh axes."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import Mesh, PartitionSpec

from xdpx.config.faults import refusal
from xdpx.utils.axis_splits import DATA, MDL, REPLICA, STAGE, Rules, splits

Axis = str | tuple[str, ...] | None
"""One dimension: a logical axis, a mesh axis, several mesh axes, or None for a dimension that is not sharded."""

Axes = tuple[Axis, ...]

TRANSFORMER_RULES = (
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
"""For meshes (replica, data, mdl): weights are sharded over data and mdl, rows over replica and data."""

ACTIVATION_AXES = ("activation_batch", "activation_length", "activation_embed")
"""The logical axes of activations (B, T, D)."""

PIPELINE_RULES = ((STAGE, STAGE), *(rule for rule in TRANSFORMER_RULES if rule[0] != STAGE))
"""For meshes (stage, replica, data, mdl): arrays stacked by stage are sharded over the stages."""


_hidden: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("hidden", default=frozenset())


@contextlib.contextmanager
def placed(mesh: Mesh, rules: Rules = TRANSFORMER_RULES) -> Generator[None]:
    """Make `constrain` effective for a mesh while a program is traced inside. The mesh needs Auto axes."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(rules):
        yield


@contextlib.contextmanager
def without_mesh_axes(*names: str) -> Generator[None]:
    """Exclude mesh axes from constraints inside: `jax.vmap(spmd_axis_name=stage)` does not accept its own axis."""
    token = _hidden.set(_hidden.get() | frozenset(names))
    try:
        yield
    finally:
        _hidden.reset(token)


def below_vmap_over_stages() -> bool:
    """Return whether the traced code is vmapped over the stages of a pipeline."""
    return bool(_hidden.get())


def constrain(x: jax.Array, axes: Sequence[Axis]) -> jax.Array:
    """Return an activation with a sharding constraint on logical axes; unchanged without a mesh or rules.

    Args:
        x: any array.
        axes: one entry per dimension, such as `("activation_batch", "activation_length", "activation_embed")`.
    """
    if jax.sharding.get_abstract_mesh().empty or not nn.get_logical_axis_rules():
        return x
    constraint: Any = jax.lax.with_sharding_constraint
    constrained: jax.Array = constraint(x, split_of(axes, x.shape))
    return constrained


def split_of(axes: Sequence[Axis], shape: Sequence[int]) -> PartitionSpec:
    """Return the partition spec of logical axes with the current mesh and rules; an empty one without them."""
    mesh, rules = jax.sharding.get_abstract_mesh(), nn.get_logical_axis_rules()
    if mesh.empty or not rules:
        return PartitionSpec()
    sizes = {name: size for name, size in mesh.shape.items() if name not in _hidden.get()}
    return resolve(axes, shape, tuple(rules), sizes)


def num_parts(axis: str, size: int) -> int:
    """Return the number of parts of a dimension with a logical axis, with the current mesh and rules."""
    (entry,) = split_of((axis,), (size,)) or (None,)
    names = () if entry is None else (entry,) if isinstance(entry, str) else entry
    mesh = jax.sharding.get_abstract_mesh()
    return math.prod(mesh.shape[name] for name in names)


def resolve(axes: Sequence[Axis], shape: Sequence[int], rules: Rules, sizes: Mapping[str, int]) -> PartitionSpec:
    """Return the partition spec of logical axes; dimensions that are not divisible are not sharded.

    Args:
        axes: one entry per dimension; further dimensions are not sharded.
        shape: of the array.
        rules: logical axis to mesh axes.
        sizes: of the mesh, by axis.

    Raises:
        ValueError: an entry is neither a logical axis of the rules nor an axis of a mesh, or there are too many.
    """
    spec: Any = PartitionSpec
    resolved: PartitionSpec = spec(*(split.entry for split in splits(axes, shape, rules, sizes)[: len(axes)]))
    return resolved


def axes_from_mapping(mapping: Sequence[Any], mesh_axis_names: Sequence[str] = (REPLICA, DATA, MDL)) -> Axes:
    """Return axes from a split mapping of axis names, tuples of names, indices of mesh axes, -1 or None.

    Raises:
        ConfigError: there is no mesh axis of an index.
    """
    axes: list[Axis] = []
    for entry in mapping:
        if entry is None or (isinstance(entry, int) and entry < 0):
            axes.append(None)
        elif isinstance(entry, int):
            if entry >= len(mesh_axis_names):
                remedy = f"Count from 0 to {len(mesh_axis_names) - 1} ({', '.join(mesh_axis_names)}), or give its name."
                raise refusal("split_dims_mapping", f"{list(mapping)} has axis {entry} of the mesh.", remedy)
            axes.append(mesh_axis_names[entry])
        else:
            axes.append(entry if isinstance(entry, str) else tuple(entry))
    return tuple(axes)
