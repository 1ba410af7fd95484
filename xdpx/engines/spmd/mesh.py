"""The grid of devices that a model is sharded over: fast links within a slice (ICI), slow ones between slices (DCN)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from xdpx.config.faults import ConfigError, refusal
from xdpx.utils.axis_splits import AXES, FILL, MESH_AXES


def make_mesh(
    ici: Sequence[int],
    dcn: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Arrange devices in a grid, so that each axis of `ici` stays within one slice and `dcn` goes across slices.

    Args:
        ici: sizes of the axes within a slice, [replica, data, mdl], or with `stage` in front; one may be -1, which
            takes all devices that are left.
        dcn: how many slices each axis spans, as many numbers as `ici`; None is 1 everywhere.
        names: of the axes, if they differ from those.
        devices: by default all devices of all processes.

    Returns:
        A mesh whose shape is `ici` times `dcn`, axis by axis, with axes of type Auto.

    Raises:
        ConfigError: the numbers do not fit one another or the devices.
    """
    found = list(jax.devices() if devices is None else devices)
    far = [1] * len(ici) if dcn is None else list(dcn)
    axis_names = _names_for(ici, names)
    _check_sizes(ici, far)
    near = _filled(ici, far, len(found))
    if prod(near) * prod(far) != len(found):
        raise _fault(
            f"are {list(near)} and {far}, a mesh of {prod(near) * prod(far)} devices; there are {len(found)}.",
            f"Choose sizes whose product is {len(found)}, or -1 for one axis, which takes the rest. "
            "(On a CPU, JAX_NUM_CPU_DEVICES says how many devices to imitate.)",
        )
    return Mesh(_grid(near, far, found), axis_names, axis_types=(AxisType.Auto,) * len(near))


def mesh_text(mesh: Mesh) -> str:
    """Return a mesh as text: its axes with their sizes, and the number and kind of devices."""
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    return f"{axes} ({mesh.size} {mesh.devices.flat[0].device_kind})"


def _names_for(ici: Sequence[int], names: Sequence[str] | None) -> tuple[str, ...]:
    known = {len(AXES): AXES, len(MESH_AXES): MESH_AXES}
    chosen = tuple(names) if names is not None else known.get(len(ici), ())
    if len(chosen) != len(ici) or len(set(chosen)) != len(chosen):
        raise _fault(
            f"have {len(ici)} numbers, {list(ici)}" + (f", for the axes {list(chosen)}." if chosen else "."),
            f"Give one per axis: {list(AXES)}, or {list(MESH_AXES)}; other axes need names, all different.",
        )
    return chosen


def _check_sizes(ici: Sequence[int], dcn: Sequence[int]) -> None:
    if len(dcn) != len(ici):
        raise _fault(f"have {len(ici)} and {len(dcn)} numbers.", "Give both the same axes, with 1 where one is whole.")
    wrong = [size for size in (*ici, *dcn) if type(size) is not int or (size < 1 and size != FILL)]
    if wrong or list(dcn).count(FILL) or list(ici).count(FILL) > 1:
        raise _fault(
            f"are {list(ici)} and {list(dcn)}.",
            "Sizes are whole numbers from 1; one of ICI_MESH_SHAPE may be -1, which takes all devices that are left.",
        )


def _filled(ici: Sequence[int], dcn: Sequence[int], count: int) -> tuple[int, ...]:
    """Return `ici` with -1 replaced by the number of devices left for that axis (at least 1)."""
    known = prod(size for size in ici if size != FILL) * prod(dcn)
    return tuple(max(1, count // known) if size == FILL else size for size in ici)


def _grid(near: Sequence[int], far: Sequence[int], devices: list[Any]) -> np.ndarray[Any, Any]:
    slices = {getattr(device, "slice_index", 0) for device in devices}
    processes = {device.process_index for device in devices}
    if devices[0].platform == "tpu" and prod(far) == 1:
        return mesh_utils.create_device_mesh(near, devices, allow_split_physical_axes=True)
    if len(slices) == prod(far) > 1:
        return mesh_utils.create_hybrid_device_mesh(near, far, devices, allow_split_physical_axes=True)
    if len(processes) == prod(far) > 1:
        return mesh_utils.create_hybrid_device_mesh(near, far, devices, process_is_granule=True)
    return _in_order(near, far, devices)


def _in_order(near: Sequence[int], far: Sequence[int], devices: list[Any]) -> np.ndarray[Any, Any]:
    """Return the grid in which each slice consists of consecutive devices of the list."""
    blocks = np.array(devices, dtype=object).reshape(*far, *near)
    rank = len(near)
    paired = blocks.transpose([axis for dim in range(rank) for axis in (dim, rank + dim)])
    return paired.reshape([outer * inner for outer, inner in zip(far, near, strict=True)])


def _fault(problem: str, remedy: str) -> ConfigError:
    return refusal("ICI_MESH_SHAPE and DCN_MESH_SHAPE", problem, remedy)
