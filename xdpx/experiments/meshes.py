"""Turn the mesh fields of an experiment into a complete mesh: -1 filled in, lengths and names checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils.axis_splits import AXES, FILL, MESH_AXES


class MeshShape(NamedTuple):
    """A mesh: sizes within a slice (ICI) and across slices (DCN), and axis names."""

    ici: tuple[int, ...]
    dcn: tuple[int, ...] | None
    names: tuple[str, ...]

    @property
    def num_devices(self) -> int:
        """The number of devices of the mesh."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The axis sizes, including slices."""
        dcn = self.dcn or (1,) * len(self.ici)
        return tuple(one * other for one, other in zip(self.ici, dcn, strict=True))

    def size(self, *names: str) -> int:
        """Return the product of the sizes of these axes; axes that the mesh does not have count as 1."""
        sizes = dict(zip(self.names, self.shape, strict=True))
        return math.prod(sizes.get(name, 1) for name in names)


def filled(
    where: str, ici: Sequence[int], dcn: Sequence[int] | None, names: Sequence[str] | None, num_devices: int
) -> MeshShape:
    """Return the mesh of these fields for a number of devices. Raises ConfigError with all faults."""
    faults = _faults(ici, dcn, names)
    if faults:
        raise ConfigError(where, faults)
    chosen = tuple(names) if names is not None else (AXES if len(ici) == len(AXES) else MESH_AXES)
    slices = math.prod(dcn) if dcn is not None else 1
    whole = fill(where, "ICI_MESH_SHAPE", ici, num_devices // slices, what="devices of a slice")
    return MeshShape(whole, tuple(dcn) if dcn is not None and slices > 1 else None, chosen)


def _faults(ici: Sequence[int], dcn: Sequence[int] | None, names: Sequence[str] | None) -> list[Fault]:
    faults = []
    if names is None and len(ici) not in {len(AXES), len(MESH_AXES)}:
        remedy = f"Give {list(AXES)} or {list(MESH_AXES)}, or set MESH_AXIS_NAMES."
        faults.append(Fault("ICI_MESH_SHAPE", f"has {len(ici)} numbers.", remedy))
    if names is not None and len(names) != len(ici):
        faults.append(Fault("MESH_AXIS_NAMES", f"has {len(names)} names for {len(ici)} axes.", "Name each axis once."))
    if dcn is not None and len(dcn) != len(ici):
        problem = f"has {len(dcn)} numbers, ICI_MESH_SHAPE has {len(ici)}."
        faults.append(Fault("DCN_MESH_SHAPE", problem, "Give both the same axes; 1 if there is one slice."))
    if list(ici).count(FILL) > 1:
        faults.append(Fault("ICI_MESH_SHAPE", f"is {list(ici)}.", "At most one axis may be -1."))
    if any(size < 1 and size != FILL for size in ici):
        faults.append(Fault("ICI_MESH_SHAPE", f"is {list(ici)}.", "Use numbers above 0, or one -1 for the rest."))
    if any(size < 1 for size in dcn or ()):
        faults.append(Fault("DCN_MESH_SHAPE", f"is {list(dcn or ())}.", "Use numbers above 0."))
    return faults


def fill(where: str, key: str, sizes: Sequence[int], available: int, *, what: str) -> tuple[int, ...]:
    """Replace a -1 among the sizes of a mesh, if any, by what the other sizes leave of the available devices.

    Args:
        where: name of the experiment or config, for messages.
        key: name of the field, for messages.
        sizes: of the axes, at most one of them -1.
        available: number of devices or slices.
        what: what is counted, e.g. `slices`.

    Raises:
        ConfigError: the product of the other sizes does not divide `available`.
    """
    if FILL not in sizes:
        return tuple(sizes)
    others = math.prod(size for size in sizes if size != FILL)
    if available < others or available % others:
        problem = f"is {list(sizes)}, and {others} does not divide {available} {what}."
        raise ConfigError(where, [Fault(key, problem, f"Use a multiple of {others}.")])
    return tuple(available // others if size == FILL else size for size in sizes)
