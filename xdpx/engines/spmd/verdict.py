"""A planned update against the memory and the speed of a device: does it fit, what is to blame, what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xdpx.engines.spmd.collectives import Collective, by_kind, seconds_on_wire
from xdpx.engines.spmd.peaks import Device
from xdpx.engines.spmd.planning import Memory, StepPlan, Tensor
from xdpx.utils.progress import format_bytes

NEAR = 1.3
"""Largest ratio of the upper to the lower bound of memory at which both together are informative."""

ROOM = 0.05
"""Share of a device's memory that its runtime and fragmentation need."""


@dataclass(frozen=True)
class Verdict:
    """Whether a plan fits a device.

    Attributes:
        fits: True: by the highest estimate of memory; False: not even by the lowest; None: by the lowest only, or the
            memory of the device is unknown.
        room: bytes that are left by the highest estimate; negative if they are missing.
        least_room: the same by the lowest estimate.
        near: whether the highest estimate is within a factor of NEAR of the lowest.
        blame: what takes most memory or time, in words, if it does not fit or communication is slow.
        hints: what would help, in words.
        compute_seconds: of an update at the peak of all devices; None without a peak.
        wire_seconds: of its collectives, were none hidden; None without a known bandwidth.
    """

    device: Device
    fits: bool | None
    room: int | None
    least_room: int | None
    near: bool
    blame: tuple[str, ...]
    hints: tuple[str, ...]
    compute_seconds: float | None
    wire_seconds: float | None


def judge(plan: StepPlan, device: Device) -> Verdict:
    """Return whether a plan fits a device, what takes most, and what would help."""
    usable = None if device.memory is None else int(device.memory * (1 - ROOM))
    room = None if usable is None else usable - plan.memory.total
    least_room = None if usable is None else usable - plan.memory.least
    fits = None if room is None or least_room is None else _fits(room, least_room)
    compute = None if device.peak_flops is None else plan.flops.training / (device.peak_flops * plan.num_devices)
    wire = None if device.link_bandwidth is None else seconds_on_wire(plan.collectives, device.link_bandwidth)
    slow = compute is not None and wire is not None and wire > compute
    large = room is not None and room < 0
    blame = [*(_too_large(plan) if large else ()), *(_too_slow(plan.collectives) if slow else ())]
    hints = [*(_to_shrink(plan) if large else ()), *(_to_talk_less(plan) if slow else ())]
    near = plan.memory.total <= NEAR * plan.memory.least
    return Verdict(device, fits, room, least_room, near, tuple(blame), tuple(hints), compute, wire)


def _fits(room: int, least_room: int) -> bool | None:
    if room >= 0:
        return True
    return False if least_room < 0 else None


def _too_large(plan: StepPlan) -> Iterator[str]:
    shares = shares_of(plan.memory)
    name, size = max(shares.items(), key=lambda pair: pair[1])
    yield f"{name} take {format_bytes(size)} of {format_bytes(plan.memory.total)}"
    if name == "activations":
        yield from (f"{_named(one)} is made during the update" for one in plan.buffers[:3])
    else:
        kinds = ("opt_state/",) if name == "optimizer" else ("params/",)
        mine = [one for one in plan.tensors if one.name.startswith(kinds)]
        yield from (f"{_named(one)}{_copies(one)}" for one in mine[:3])


def _too_slow(collectives: list[Collective]) -> Iterator[str]:
    for one in by_kind(collectives)[:2]:
        size = format_bytes(one.wire_bytes)
        most = f"most of all {one.arrays} for {one.source or 'the update'}"
        yield f"communication takes longer than computing, by {one}: {one.count} in an update send {size}, {most}"


def shares_of(memory: Memory) -> dict[str, int]:
    """Return the parts of a device's memory by name."""
    return {"parameters": memory.parameters, "optimizer": memory.optimizer, "gradients": memory.gradients,
            "activations": memory.activations, "other": memory.other, "batch": memory.batch}  # fmt: skip


def _named(one: Tensor) -> str:
    return f"{one.name or 'a buffer'} {one.shape} ({format_bytes(one.bytes)})"


def _copies(one: Tensor) -> str:
    return f", the same on {one.copies} devices" if one.copies > 1 else ""


def _to_shrink(plan: StepPlan) -> Iterator[str]:
    memory = plan.memory
    data, mdl = plan.mesh.get("data", 1), plan.mesh.get("mdl", 1)
    if memory.state + memory.gradients > memory.activations:
        if plan.mesh.get("replica", 1) > 1:
            yield "replica copies all weights: give its devices to data in ICI_MESH_SHAPE, which splits them"
        yield f"split the state further: data {data} -> {2 * data} in ICI_MESH_SHAPE, with twice the devices"
        yield "keep less for each weight: OPTIMIZER=sharded_adafactor"
        return
    if plan.rows > plan.num_devices // mdl:
        yield "halve PERCORE_BATCH_SIZE, or accumulate micro-batches: activations shrink with it"
    yield "keep less of the forward pass: CHECKPOINT_POLICY=save_nothing, with USE_REPEATED_LAYER=True"
    largest = plan.buffers[0] if plan.buffers else None
    if largest is not None and mdl == 1:
        yield f"split the widest arrays over mdl: 2 instead of 1 in ICI_MESH_SHAPE halves {largest.shape}"


def _to_talk_less(plan: StepPlan) -> Iterator[str]:
    worst: Any = by_kind(plan.collectives)[0]
    if "mdl" in worst.axes:
        yield "mdl talks in every layer: give its devices to data"
    elif "data" in worst.axes:
        yield "weights are gathered for too few tokens: raise PERCORE_BATCH_SIZE, or split less over data"
    elif "stage" in worst.axes:
        yield "stages pass on too little at a time: raise MICROBATCH_SIZE"
    else:
        yield "replicas exchange all gradients: raise PERCORE_BATCH_SIZE"
