"""Text descriptions of experiments: fields by class, all values of the task, derived facts, plans and verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.fields import values_by_class
from xdpx.utils.progress import format_bytes

if TYPE_CHECKING:
    from xdpx.engines.spmd.planning import StepPlan
    from xdpx.engines.spmd.verdict import Verdict

TERA = 1e12
_SETTING = re.compile(r"\b([A-Z][A-Z_]+)=([\w.]+)")


def class_vars_text(experiment: BaseExperiment | type[BaseExperiment]) -> str:
    """Return the content of `experiment_cls_vars.txt`: the fields, grouped by the class that sets them last."""
    cls = experiment if isinstance(experiment, type) else type(experiment)
    blocks = []
    for owner, values in values_by_class(cls):
        lines = [f"    {name}: {_shown(value)}" for name, value in values.items()]
        blocks.append("\n".join([f"{owner.__module__}.{owner.__qualname__}:", *lines]))
    own = (
        {} if isinstance(experiment, type) else {key: value for key, value in vars(experiment).items() if key.isupper()}
    )
    if own:
        blocks.append("\n".join(["this experiment:", *(f"    {name}: {_shown(value)}" for name, value in own.items())]))
    return "\n\n".join(blocks) + "\n"


def model_params_text(experiment: BaseExperiment) -> str:
    """Return the content of `model_params.txt`: every value of the task and of the inputs, one per line.

    Inputs that cannot be built, e.g. because no path is set, are replaced by the reason.
    """
    from xdpx.config.faults import ConfigError

    lines = [f"task.{line}" for line in experiment.task().to_text().splitlines()]
    for kind, given in (("datasets", experiment.datasets), ("decode_datasets", experiment.decode_datasets)):
        try:
            templates = given()
        except ConfigError as error:
            reasons = " ".join(f"{fault.key} {fault.problem}" for fault in error.faults)
            lines.append(f"{kind} : not resolved: {reasons}")
            continue
        for index, template in enumerate(templates):
            lines += [f"{kind}[{index}].{line}" for line in template.to_text().splitlines()]
    return "\n".join(lines) + "\n"


def facts_of(experiment: BaseExperiment, num_devices: int | None = None) -> dict[str, Any]:
    """Return facts that follow from the fields, such as devices, mesh and global batch."""
    mesh = experiment.mesh_shape(num_devices)
    axes = " x ".join(f"{name} {size}" for name, size in zip(mesh.names, mesh.shape, strict=True))
    facts: dict[str, Any] = {"devices": mesh.num_devices, "mesh": axes}
    if mesh.dcn is not None:
        facts["across slices"] = " x ".join(
            f"{name} {size}" for name, size in zip(mesh.names, mesh.dcn, strict=True) if size > 1
        )
    global_batch = getattr(experiment, "global_batch", None)
    if global_batch is not None:
        facts["global batch"] = global_batch(num_devices)
    length = getattr(experiment, "MAX_SEQ_LEN", None)
    if global_batch is not None and length is not None:
        facts["tokens per batch"] = facts["global batch"] * length
    micro = getattr(experiment, "num_microbatches", None)
    if micro is not None and micro(num_devices) > 1:
        facts["micro-batches"] = micro(num_devices)
    return facts


def description(experiment: BaseExperiment) -> str:
    """Return a text with the fields by class and the facts that follow from them."""
    facts = "\n".join(f"    {name}: {_number(value)}" for name, value in facts_of(experiment).items())
    return f"{class_vars_text(experiment)}\nwhat follows:\n{facts}"


def plan_text(name: str, experiment: BaseExperiment, plan: StepPlan, verdict: Verdict | None) -> str:
    """Return a plan as text for people."""
    facts = facts_of(experiment, plan.num_devices)
    return "\n".join([
        name, *(f"  {key.ljust(20)} {_number(value)}" for key, value in facts.items()),
        f"  {'parameters'.ljust(20)} {plan.parameters:,} ({plan.parameters / 1e9:.2f}B)",
        "", *_memory_lines(plan, verdict),
        *(f"attention                {reason}" for reason in plan.attention), "", *_flops_lines(plan, verdict),
        "", *_collective_lines(plan), *_report_lines(plan), *_verdict_lines(experiment, plan, verdict), "",
        "  " + ", ".join(f"{key} {value:.1f} s" for key, value in plan.seconds.items()) + ", nothing allocated",
    ])  # fmt: skip


def _memory_lines(plan: StepPlan, verdict: Verdict | None) -> Iterator[str]:
    from xdpx.engines.spmd.verdict import shares_of

    have = verdict.device.memory if verdict is not None else None
    of = f" of {format_bytes(have)} of {verdict.device.name}" if have and verdict is not None else ""
    least, most = plan.memory.least, plan.memory.total
    yield f"memory of a device       {format_bytes(least)} to {format_bytes(most)}{of}"
    for name, size in shares_of(plan.memory).items():
        known = f"at least {format_bytes(plan.memory.activation_floor)}, for the backward pass"
        note = f"  ({known}; at most as a CPU's compiler has it)" if name == "activations" else ""
        yield f"  {name.ljust(20)} {format_bytes(size).rjust(10)}{note}"


def _flops_lines(plan: StepPlan, verdict: Verdict | None) -> Iterator[str]:
    training = plan.flops.training
    yield f"model FLOPs per update   {training:.4g} (counted: full attention, no remat, no lookups)"
    unit = "per token" if plan.tokens > plan.rows else "per example"
    yield f"  {unit.ljust(20)} {training / max(1, plan.tokens):.4g}"
    yield f"  {'per device'.ljust(20)} {training / plan.num_devices / TERA:.1f} TFLOPs"
    if verdict is not None and verdict.compute_seconds is not None:
        yield f"  {'at the peak'.ljust(20)} {verdict.compute_seconds:.3f} s per update on {verdict.device.name}"
    if verdict is not None and verdict.wire_seconds is not None and plan.collectives:
        yield f"  {'on the wire'.ljust(20)} {verdict.wire_seconds:.3f} s per update, if not overlapped"
    if plan.flops.unknown:
        hidden = ", ".join(f"{name} x{times}" for name, times in plan.flops.unknown.items())
        yield f"  {'not counted'.ljust(20)} {hidden}"


def _collective_lines(plan: StepPlan) -> Iterator[str]:
    from xdpx.engines.spmd.collectives import by_kind

    if not plan.seconds.get("compile"):
        yield "collectives              not known without compiling: --plan"
        return
    yield "collectives of an update, on each device"
    for one in by_kind(plan.collectives):
        size = format_bytes(one.wire_bytes).rjust(10)
        yield f"  {str(one).ljust(34)} {str(one.count).rjust(6)}x {size}  most: {one.arrays} {one.source}"
    if not plan.collectives:
        yield "  none"


def _report_lines(plan: StepPlan) -> Iterator[str]:
    if plan.reports:
        yield ""
        yield "not split"
        yield from (f"  {report}" for report in plan.reports)


def _verdict_lines(experiment: BaseExperiment, plan: StepPlan, verdict: Verdict | None) -> Iterator[str]:
    if verdict is None:
        return
    yield ""
    name, room, least = verdict.device.name, verdict.room, verdict.least_room
    if room is None or least is None:
        yield "unknown whether it fits: this device's memory is not known"
    elif verdict.fits:
        yield f"it fits: {format_bytes(room)} of {name} are left"
    elif verdict.fits is None and not verdict.near:
        bounds = f"{format_bytes(plan.memory.least)} to {format_bytes(plan.memory.total)}"
        yield f"unknown whether it fits: {bounds} is too wide a range for {name}; run a few updates there"
    elif verdict.fits is None:
        yield f"it may fit: on {name} {format_bytes(least)} are left at least use, {format_bytes(-room)} lack at most"
    else:
        yield f"it does not fit: {format_bytes(-least)} are missing on {name}"
    yield from (f"  to blame: {blame}" for blame in verdict.blame)
    yield from (f"  try: {hint}" for hint in verdict.hints if not _is_so(experiment, hint))


def _is_so(experiment: BaseExperiment, hint: str) -> bool:
    """Return whether all fields that a hint mentions already have the recommended value."""
    named = _SETTING.findall(hint)
    return bool(named) and all(str(getattr(experiment, name, None)) == value for name, value in named)


def plan_data(name: str, experiment: BaseExperiment, plan: StepPlan, verdict: Verdict | None) -> dict[str, Any]:
    """Return a plan as plain data for `--json`."""
    facts = facts_of(experiment, plan.num_devices)
    memory = {**asdict(plan.memory), "state": plan.memory.state, "total": plan.memory.total,
              "least": plan.memory.least}  # fmt: skip
    data: dict[str, Any] = {
        "experiment": name, **{key.replace(" ", "_"): value for key, value in facts.items()},
        "mesh": dict(plan.mesh), "parameters": plan.parameters, "memory_per_device": memory,
        "flops_per_update": plan.flops.training, "flops_not_counted": dict(plan.flops.unknown),
        "collectives": [asdict(one) for one in plan.collectives], "tensors": [asdict(one) for one in plan.tensors[:20]],
        "buffers": [asdict(one) for one in plan.buffers], "not_split": plan.reports, "seconds": dict(plan.seconds),
        "attention": plan.attention,
    }  # fmt: skip
    if verdict is not None:
        data["verdict"] = {**asdict(verdict), "device": verdict.device.name}
    return data


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _shown(value: object) -> str:
    """Return a value as text: tuples as lists, types by their qualified name."""
    if isinstance(value, tuple):
        return str(list(value))
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Mapping):
        return str({key: _shown(item) for key, item in value.items()})
    return str(value)
