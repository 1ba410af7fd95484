"""The collectives of a compiled step, read from its HLO text: which kind, how often, how many bytes, over what axis.

An all-reduce of which each device uses only its own part counts as a reduce-scatter: accelerators compile it to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax.sharding import Mesh

from xdpx.engines.spmd.hlo_text import Line, Program, only_slices, plain_source

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
_WIRE = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0, "all-to-all": 1.0, "ragged-all-to-all": 1.0}
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{} ]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}")
_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?")
_MESH_AXIS = re.compile(r"'?([\w.\-]+)'?=(\d+)")
_SUB_AXIS = re.compile(r"'([\w.\-]+)'(?::\((\d+)\)(\d+))?")
_INDEX = re.compile(r"\), index=(\d+)")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}")


@dataclass(frozen=True)
class Collective:
    """A group of equal collectives of a step.

    Attributes:
        kind: e.g. `all-gather`.
        axes: names of the mesh axes it runs over, `?` if the text does not say.
        count: how often it runs in one step.
        bytes: one device's buffers over all runs.
        wire_bytes: least number of bytes that one device sends, over all runs (ring algorithms).
        group: devices in each group.
        arrays: what it carries, as text.
        source: the place in the model that needs it.
    """

    kind: str
    axes: tuple[str, ...]
    count: int
    bytes: int
    wire_bytes: float
    group: int
    arrays: str
    source: str

    def __str__(self) -> str:
        return f"{self.kind} over {' and '.join(self.axes)}"


def of_program(program: Program, mesh: Mesh) -> list[Collective]:
    """Return the collectives of a program, those that send most first."""
    found: dict[tuple[object, ...], Collective] = {}
    for one in _each(program, mesh):
        key = (one.kind, one.axes, one.arrays, one.source)
        found[key] = _joined(found[key], one) if key in found else one
    return sorted(found.values(), key=lambda one: -one.wire_bytes)


def _each(program: Program, mesh: Mesh) -> Iterator[Collective]:
    for name, lines in program.computations.items():
        for line in lines if program.runs.get(name) else []:
            kind = line.kind.removesuffix("-start")
            for part, scattered in _parts(program, lines, line) if kind in KINDS else []:
                one = _collective(kind, part, program.runs[name], mesh)
                if scattered:
                    one = replace(one, kind="reduce-scatter", wire_bytes=one.wire_bytes / 2)
                if one.group > 1:
                    yield one


def _parts(program: Program, lines: list[Line], line: Line) -> Iterator[tuple[Line, bool]]:
    """Yield the parts of an all-reduce and whether devices use only slices of each: CPU compilers do not fuse these."""
    if line.kind != "all-reduce":
        yield line, False
        return
    taken = {int(found[1]): one for one in lines if line.name in one.operands and (found := _INDEX.search(one.text))}
    whole = [taken.get(index, line) for index in range(len(line.results))] if len(line.results) > 1 else [line]
    sliced = [only_slices(program, lines, one) for one in whole]
    for wanted in (True, False):
        arrays = tuple(array for array, is_sliced in zip(line.results, sliced, strict=True) if is_sliced is wanted)
        if arrays:
            yield replace(line, results=arrays), wanted


def by_kind(collectives: Sequence[Collective]) -> list[Collective]:
    """Sum them by kind and axes, largest first; `arrays` and `source` are those of the largest of each."""
    sums: dict[tuple[object, ...], Collective] = {}
    for one in sorted(collectives, key=lambda one: -one.wire_bytes):
        before = sums.get((one.kind, one.axes))
        sums[one.kind, one.axes] = one if before is None else _joined(before, one)
    return sorted(sums.values(), key=lambda one: -one.wire_bytes)


def _joined(one: Collective, other: Collective) -> Collective:
    return Collective(
        one.kind, one.axes, one.count + other.count, one.bytes + other.bytes,
        one.wire_bytes + other.wire_bytes, max(one.group, other.group), one.arrays, one.source,
    )  # fmt: skip


def _collective(kind: str, line: Line, times: int, mesh: Mesh) -> Collective:
    groups = _groups(line.text, mesh.size)
    axes, size = _axes(groups, mesh)
    if kind == "collective-permute":
        axes, size = _axes(_pairs(line.text), mesh)
    arrays = line.results[len(line.results) // 2 :] if line.kind.endswith("-start") and kind != "all-reduce" else None
    carried = arrays or line.results
    held = sum(array.bytes for array in carried) * (size if kind == "reduce-scatter" else 1)
    wire = held * _WIRE.get(kind, 1.0) * ((size - 1) / size if kind in _WIRE and size else 1.0)
    shown = max(carried, key=lambda array: array.bytes, default=None)
    return Collective(kind, axes, times, held * times, wire * times, size, str(shown), plain_source(line.source))


def _groups(text: str, devices: int) -> np.ndarray | None:
    """Return the groups as rows of device positions; None when there are none or they cannot be read."""
    if (iota := _IOTA.search(text)) is not None:
        shape, dims = _sizes(iota[1]), _sizes(iota[2])
        order = _sizes(iota[3]) if iota[3] else tuple(range(len(dims)))
        return np.arange(np.prod(dims)).reshape(dims).transpose(order).reshape(shape)
    if (listed := _LISTED.search(text)) is not None:
        rows = [_sizes(row) for row in re.findall(r"\{([\d,]+)\}", listed[1])]
        return np.array(rows) if len({len(row) for row in rows}) == 1 else None
    if (named := _MESH.search(text)) is not None:
        return _mesh_groups(named[1], named[2] or "", named[3])
    return np.arange(devices)[None] if "replica_groups={}" in text else None


def _mesh_groups(sizes_text: str, order_text: str, axes_text: str) -> np.ndarray:
    """Read groups given as axes, or parts of axes (`'a':(2)4`: 4 after the first 2), of a mesh of devices in an order.

    The order is that of counting, a list, or `[2,4]T(1,0)`: counting through a grid that is turned.
    """
    sizes = {name: int(size) for name, size in _MESH_AXIS.findall(sizes_text)}
    order = np.arange(np.prod(list(sizes.values())))
    if (turned := _ORDER.match(order_text)) is not None:
        dims = _sizes(turned[1])
        order = order.reshape(dims).transpose(_sizes(turned[2]) if turned[2] else range(len(dims))).reshape(-1)
    elif order_text:
        order = np.array(_sizes(order_text))
    grid = order.reshape(list(sizes.values()))
    taken: dict[str, tuple[int, int]] = {}
    for name, before, size in _SUB_AXIS.findall(axes_text):
        taken[name] = (int(before or 1), int(size or sizes[name]))
    split: list[int] = []
    inner: list[int] = []
    for name, size in sizes.items():
        before, width = taken.get(name, (1, 1))
        inner.append(len(split) + 1)
        split += [before, width, size // (before * width)]
    cut = grid.reshape(split)
    outer = [axis for axis in range(cut.ndim) if axis not in inner]
    width = int(np.prod([cut.shape[axis] for axis in inner]))
    return cut.transpose(*outer, *inner).reshape(-1, width)


def _pairs(text: str) -> np.ndarray | None:
    found = _PAIRS.search(text)
    if found is None:
        return None
    return np.array([_sizes(pair) for pair in re.findall(r"\{(\d+,\d+)\}", found[1])])


def _axes(groups: np.ndarray | None, mesh: Mesh) -> tuple[tuple[str, ...], int]:
    """Name the axes along which the devices of a group differ. Positions count through the mesh row by row."""
    if groups is None:
        return ("?",), mesh.size
    shape = tuple(mesh.shape.values())
    places = np.stack(np.unravel_index(groups, shape), axis=-1)
    differs = (places != places[:, :1]).any(axis=(0, 1))
    names = tuple(name for name, moved in zip(mesh.axis_names, differs, strict=True) if moved)
    return names or ("nothing",), int(groups.shape[1])


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def seconds_on_wire(collectives: Sequence[Collective], bandwidth: float) -> float:
    """Return the least time of the collectives if none overlaps with computation."""
    return sum(one.wire_bytes for one in collectives) / bandwidth
