"""Plan an experiment: its task and batch on the documented mesh, its model FLOPs, and its efficiency while running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xdpx.config.faults import ConfigError, Fault, did_you_mean, first_few, refusal
from xdpx.config.hparams import BaseHParams, build
from xdpx.engines.spmd import flops
from xdpx.engines.spmd.engine import SpmdOptions
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import without_boxes
from xdpx.engines.spmd.peaks import Device, Efficiency, device_of_kind
from xdpx.engines.spmd.planning import StepPlan, as_bfloat16, count_forward, plan_update, rows_and_tokens
from xdpx.engines.spmd.state import StatePlan
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.logger import log
from xdpx.models.spmd.layers import fused_attention
from xdpx.models.spmd.sharding import TRANSFORMER_RULES
from xdpx.utils.axis_splits import MESH_AXES, Rules
from xdpx.utils.nested_map import NestedMap


@dataclass(frozen=True)
class PlannedTask:
    """A task with the shapes of its variables, so that `init` need not be traced once more: seconds for a large model.

    Attributes:
        template: what the task was built from; its types of numbers may be others.
        task: as built.
        state: the shapes.
    """

    template: BaseHParams
    task: Any
    state: StatePlan


def plan_experiment(
    experiment: BaseExperiment,
    *,
    num_devices: int | None = None,
    compiling: bool = True,
    platform: str | None = None,
) -> StepPlan:
    """Plan one update of an experiment on imitated devices of its mesh. No arrays are allocated, no data is read.

    Args:
        experiment: the experiment to plan.
        num_devices: from which -1 in the mesh is filled; `PLAN_DEVICES` by default.
        compiling: False omits the collectives and XLA's figure for activations.
        platform: `cuda` or `tpu`, to plan with the attention kernels of that platform; None to plan without kernels.
    """
    if num_devices is not None:
        experiment.use_devices(num_devices)
    experiment.validate()
    shape = experiment.mesh_shape()
    mesh = make_mesh(shape.ici, shape.dcn, shape.names, imitated_devices(shape.num_devices))
    task = experiment.task()
    built = build(_sixteen_bits(task))

    def counted(state: StatePlan) -> flops.Count:
        return flops_of(experiment, planned=PlannedTask(task, built, state))

    with fused_attention.traced_for(platform or "cpu", imitated=True) as attention:
        plan = plan_update(
            built, specs_of(experiment), mesh=mesh, rules=rules_of(experiment),
            options=engine_options(task.train, averaged=task.train.eval_use_ema_states),
            micro_batches=task.train.accumulate_batches, counted=counted, compiling=compiling,
        )  # fmt: skip
    named = as_bfloat16(plan) if _holds(task, jnp.bfloat16) and not _holds(task, jnp.float16) else plan
    return replace(named, attention=attention if platform is not None else [])


def engine_options(train: BaseHParams, *, averaged: bool) -> SpmdOptions:
    """Return the settings of the engine that a task specifies.

    Args:
        train: `TrainHParams` of the task.
        averaged: use the averaged weights for scoring and decoding.
    """
    return SpmdOptions(
        seed=train.random_seed, precision=train.matmul_precision, score_averaged=averaged,
        max_inflight=train.max_inflight_steps,
    )  # fmt: skip


def _sixteen_bits(template: object) -> Any:
    """Return a template with bfloat16 replaced by float16, which has the same size and which CPUs need not widen."""
    if isinstance(template, BaseHParams):
        copy = template.clone()
        for name, value in copy.fields_and_values():
            changed = _sixteen_bits(value)
            if changed is not value:
                setattr(copy, name, changed)
        return copy
    if isinstance(template, list | tuple) and any(isinstance(item, BaseHParams) for item in template):
        return type(template)(_sixteen_bits(item) for item in template)
    return jnp.dtype(jnp.float16) if _is_type(template, jnp.bfloat16) else template


def _is_type(value: object, kind: Any) -> bool:
    return isinstance(value, np.dtype | type) and value in {jnp.dtype(kind), kind}


def _holds(template: object, kind: object) -> bool:
    """Return whether a template uses a dtype anywhere."""
    if isinstance(template, BaseHParams):
        return any(_holds(value, kind) for _, value in template.fields_and_values())
    if isinstance(template, list | tuple):
        return any(_holds(item, kind) for item in template)
    return _is_type(template, kind)


def rules_of(experiment: BaseExperiment) -> Any:
    """Return the sharding rules of an experiment; those of transformers if it has none of its own.

    Raises:
        ConfigError: they are not pairs of names, or none is for the rows of a batch.
    """
    own = experiment.rules()
    if own is None:
        return TRANSFORMER_RULES
    where = f"{type(experiment).__name__}.rules"
    remedy = (
        "Return pairs of a logical axis and the mesh axes that split it, e.g. (('batch', ('replica', 'data')), ...)."
    )
    if isinstance(own, str) or not (isinstance(own, Sequence) and all(map(_is_rule, own))):
        raise refusal(where, f"gave {own!r:.80}.", remedy)
    if "batch" not in dict(own):
        raise refusal(where, "has no rule for 'batch', the rows.", "Add one: ('batch', ('replica', 'data')).")
    _warn_of_no_axis(where, own, experiment.mesh_shape().names)
    return own


def _warn_of_no_axis(where: str, rules: Rules, names: Sequence[str]) -> None:
    """Warn of rules that name an axis which neither this mesh nor the usual one has: they split nothing."""
    known, idle = {*names, *MESH_AXES}, dict[str, list[str]]()
    for name, axes in rules:
        for axis in (axes,) if isinstance(axes, str) else axes or ():
            if axis not in known:
                idle.setdefault(axis, []).append(name)
    for axis, logical in idle.items():
        advice = did_you_mean(axis, known, rest=f"It has {', '.join(names)}.")
        log.warning(
            f"{where}: the mesh has no axis '{axis}', so that does not split {first_few(logical, 4)}. {advice}",
            once=True,
        )


def _is_rule(rule: Any) -> bool:
    pair = isinstance(rule, tuple | list) and len(rule) == 2 and isinstance(rule[0], str)
    if not pair or rule[1] is None or isinstance(rule[1], str):
        return pair
    return isinstance(rule[1], tuple | list) and all(isinstance(axis, str) for axis in rule[1])


def specs_of(experiment: BaseExperiment) -> NestedMap:
    """Return a `ShapeDtypeStruct` for each array of a global batch."""
    return structs_of(experiment.input_specs())


def structs_of(specs: Mapping[str, Any]) -> NestedMap:
    """Return a `ShapeDtypeStruct` for each (shape, dtype) in nested maps."""

    def one(spec: Any) -> Any:
        if isinstance(spec, Mapping):
            return structs_of(spec)
        shape, kind = spec
        return jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind))

    return NestedMap({name: one(spec) for name, spec in specs.items()})


def flops_of(
    experiment: BaseExperiment, spec: Mapping[str, Any] | None = None, *, planned: PlannedTask | None = None
) -> flops.Count:
    """Count the model FLOPs of the forward pass on a global batch. Nothing is computed.

    A pipeline also computes while it fills and drains, which is not model work, so its layers are counted without it
    (`BaseExperiment.counted_task`).

    Args:
        experiment: whose FLOPs.
        spec: a global batch; None: as the experiment describes it.
        planned: its task, whose variables are then not traced again if the same task is counted.
    """
    batch = spec if spec is not None else specs_of(experiment)
    template = experiment.counted_task()
    with fused_attention.traced_for("cpu"):  # on which matrix products are counted, not an opaque kernel
        if planned is not None and planned.template == template:
            return count_forward(planned.task, planned.state, batch)
        task = build(template)
        key = jax.eval_shape(lambda: jax.random.key(0))
        variables = without_boxes(dict(jax.eval_shape(task.init, key, batch)))
        return flops.count(lambda held, rows, draw: task.train_loss(held, rows, draw)[0], variables, batch, key)


def efficiency_of(
    experiment: BaseExperiment,
    mesh: Mesh,
    *,
    spec: NestedMap | None = None,
    device: Device | None = None,
    planned: PlannedTask | None = None,
) -> Efficiency:
    """Return the converter from seconds per update to MFU and tokens per second on the devices of a mesh.

    Args:
        experiment: the experiment that is trained.
        mesh: the devices in use.
        spec: a global batch; None: as the experiment describes it.
        device: supplies the peak FLOPs if JAX's device name does not identify them (e.g. a CPU).
        planned: as for `flops_of`.
    """
    spec = specs_of(experiment) if spec is None else spec
    batches = experiment.task().train.accumulate_batches
    _, tokens = rows_and_tokens(spec)
    known = device if device is not None else device_of_kind(mesh.devices.flat[0].device_kind)
    one = flops_of(experiment, spec, planned=planned)
    return Efficiency(one.training * batches, tokens * batches, mesh.size, known.peak_flops)


def imitated_devices(count: int) -> list[Any]:
    """Return the first `count` CPU devices, creating them if JAX has not started yet.

    Raises:
        ConfigError: JAX has already started with fewer devices.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:
        pass  # JAX has started: use the devices that exist
    devices = jax.devices("cpu")
    if len(devices) < count:
        problem = f"{count} devices were requested, but JAX already runs with {len(devices)}."
        remedy = f"Plan in a process of its own (x-exp --plan), or set JAX_NUM_CPU_DEVICES={count} before JAX starts."
        raise ConfigError("plan", [Fault("devices", problem, remedy)])
    return devices[:count]
