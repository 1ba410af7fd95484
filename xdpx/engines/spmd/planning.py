"""The cost of one update, before anything is allocated: memory per device, FLOPs, communication between devices.

The update is traced, lowered and compiled ahead of time for a mesh of devices that may be imitated by a CPU. The state
is known exactly from shapes and shardings. Of what lives during the update only, XLA's memory analysis tells the size
for the program it made for this machine, so a floor is given beside it: what the backward pass must find of the forward
pass, perfectly split.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xdpx.engines.spmd import flops
from xdpx.engines.spmd.collectives import Collective, of_program
from xdpx.engines.spmd.engine import SpmdOptions, functions_of
from xdpx.engines.spmd.hlo_text import Program, plain_source, read_program
from xdpx.engines.spmd.partitioning import batch_sharding, bytes_per_device, path_name
from xdpx.engines.spmd.retracing import Retraces
from xdpx.engines.spmd.state import SpmdTask, StatePlan, Variables, plan_state
from xdpx.engines.spmd.steps import Compiled, jitted, widened_shapes
from xdpx.utils.axis_splits import Rules

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""For programs that are analysed and never run: their sharding and their buffers do not depend on these options."""

_HALF, _BFLOAT = re.compile(r"\bf(loat)?16\["), lambda found: f"bf{found[1] or ''}16["
_VIEWS = frozenset({"parameter", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "constant"})


@dataclass(frozen=True)
class Tensor:
    """One array as one device holds it.

    Attributes:
        name: its path in the state, or the place of the model that makes it.
        shape: of the part on one device; `whole` of the array where it is known.
        bytes: of that part.
        copies: how many devices hold the same part; 1 when it is split over all.
    """

    name: str
    shape: str
    bytes: int
    whole: str = ""
    copies: int = 1


@dataclass(frozen=True)
class Memory:
    """Bytes of one device. `activations` is what lives during an update beside gradients, gathered weights included.

    XLA's figure for a CPU is a ceiling: it widens products to float32 and joins less than an accelerator's compiler.

    Attributes:
        parameters, optimizer, other, batch: exact; `other` are the model's non-trainable variables and counters, and
            `batch` are all micro-batches of an update.
        gradients: one for each parameter, split like it; of several micro-batches, their sum in at least float32.
        activations: the larger of XLA's figure and the floor; the floor alone when nothing was compiled.
        activation_floor: what the backward pass must find, split over all devices.
    """

    parameters: int
    optimizer: int
    other: int
    batch: int
    gradients: int
    activations: int
    activation_floor: int

    @property
    def state(self) -> int:
        """Bytes that are in use between updates."""
        return self.parameters + self.optimizer + self.other

    @property
    def total(self) -> int:
        """All together, at most."""
        return self.state + self.batch + self.gradients + self.activations

    @property
    def least(self) -> int:
        """All together, with no more than the floor for activations."""
        return self.total - self.activations + self.activation_floor


@dataclass(frozen=True)
class StepPlan:
    """One update, planned.

    Attributes:
        mesh: its axes and sizes; `num_devices` their product.
        parameters: how many numbers are trained.
        memory: of one device.
        flops: of the model's forward pass over all that an update sees; `flops.training` is that of an update.
        rows, tokens: of an update, all micro-batches together.
        collectives: of one update, the largest first; none when nothing was compiled.
        tensors: of the state, the largest on a device first.
        buffers: made during the update, the largest first; none when nothing was compiled.
        reports: dimensions that could not be split as their rules say.
        seconds: duration of tracing, lowering and compiling.
        attention: which kernel attends on the platform that is planned for, and why; empty where none is named.
    """

    mesh: Mapping[str, int]
    num_devices: int
    parameters: int
    memory: Memory
    flops: flops.Count
    rows: int
    tokens: int
    collectives: list[Collective] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    seconds: Mapping[str, float] = field(default_factory=dict)
    attention: list[str] = field(default_factory=list)


def as_bfloat16(plan: StepPlan) -> StepPlan:
    """Return a plan with float16 renamed to bfloat16, in whose place it was planned: CPUs need not widen float16."""

    def named(one: Any) -> Any:
        texts = {key: value for key, value in vars(one).items() if isinstance(value, str)}
        return replace(one, **{key: _HALF.sub(_BFLOAT, value) for key, value in texts.items()})

    return replace(
        plan, collectives=list(map(named, plan.collectives)), tensors=list(map(named, plan.tensors)),
        buffers=list(map(named, plan.buffers)), reports=[_HALF.sub(_BFLOAT, text) for text in plan.reports],
    )  # fmt: skip


def plan_update(
    task: SpmdTask,
    spec: Mapping[str, Any],
    *,
    mesh: Mesh,
    rules: Rules,
    options: SpmdOptions | None = None,
    micro_batches: int = 1,
    counted: Callable[[StatePlan], flops.Count] | None = None,
    compiling: bool = True,
) -> StepPlan:
    """Plan one update. Nothing is allocated on any device.

    Args:
        task: what is computed.
        spec: `ShapeDtypeStruct` of every array of one batch over all processes.
        mesh: where; its devices may be imitated.
        rules: which mesh axes split which logical axis.
        options: of the engine that will run it.
        micro_batches: how many such batches an update takes.
        counted: gives the FLOPs of one batch's forward pass where its trace would not show the model's own (a pipeline
            also computes while it fills and drains), from the state's shapes; by default the task's loss is counted.
        compiling: False stops before lowering: no collectives, no buffers, no figure of XLA for activations.
    """
    seconds: dict[str, float] = {}
    reports: list[str] = []
    batch = _placed_batch(spec, rules, mesh)
    with _timed(seconds, "trace"):
        state = plan_state(task, spec, rules, mesh, report=lambda text: _note(reports, text))
        one = counted(state) if counted is not None else count_forward(task, state, batch)
        floor = _kept_for_backward(task, state, batch) // mesh.size
    count = flops.Count()
    count.add(one, micro_batches)
    program, temporary = Program(), 0
    if compiling:
        functions = functions_of(task, mesh, rules, options or SpmdOptions(), Retraces())
        program, temporary = _compiled(functions, state, (batch,) * micro_batches, seconds)
    shapes, placed = state.shapes, state.placed
    parameters = bytes_per_device(shapes["params"], placed["params"])
    summed = widened_shapes(shapes["params"]) if micro_batches > 1 else shapes["params"]
    gradients = bytes_per_device(summed, placed["params"])
    arrays = jax.tree.leaves(batch)
    memory = Memory(
        parameters=parameters,
        optimizer=bytes_per_device(shapes["opt_state"], placed["opt_state"]),
        other=bytes_per_device(shapes["non_trainable"], placed["non_trainable"]),
        batch=bytes_per_device(arrays, [each.sharding for each in arrays]) * micro_batches,
        gradients=gradients,
        activations=max(floor, temporary - gradients),
        activation_floor=floor,
    )
    rows, tokens = (number * micro_batches for number in rows_and_tokens(spec))
    return StepPlan(
        mesh=dict(mesh.shape), num_devices=mesh.size, parameters=_numbers(shapes["params"]), memory=memory,
        flops=count, rows=rows, tokens=tokens, collectives=of_program(program, mesh), tensors=_tensors(state),
        buffers=list(_buffers(program)), reports=reports, seconds=seconds,
    )  # fmt: skip


def rows_and_tokens(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of rows of a batch, and of tokens: all its `ids`, those of source and target alike; else rows.

    Args:
        spec: arrays of the batch or their shapes, with maps inside or without.
    """
    named = [(path_name(path), leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(spec)]
    rows = next(shape[0] for _, shape in named if shape)
    return rows, sum(math.prod(shape) for name, shape in named if name.rpartition("/")[2] == "ids") or rows


def count_forward(task: SpmdTask, state: StatePlan, batch: Any) -> flops.Count:
    """Count the FLOPs of a task's training loss on a batch of shapes."""
    return flops.count(_loss(task), state.shapes["params"], state.shapes["non_trainable"], batch, _key())


def _loss(task: SpmdTask) -> Callable[..., Any]:
    def loss(params: Any, non_trainable: Any, batch: Any, key: object) -> Any:
        return task.train_loss(Variables(params, non_trainable).as_mapping(), batch, key)[0]

    return loss


def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _kept_for_backward(task: SpmdTask, state: StatePlan, batch: Any) -> int:
    """Return the bytes, over all devices, that the forward pass leaves for the backward pass beside the weights."""
    loss = _loss(task)

    def pull(params: Any, non_trainable: Any, batch: Any, key: object) -> Any:
        return jax.vjp(lambda weights: loss(weights, non_trainable, batch, key), params)[1]

    kept = jax.eval_shape(pull, state.shapes["params"], state.shapes["non_trainable"], batch, _key())
    weights = Counter(tuple(leaf.shape) for leaf in jax.tree.leaves(state.shapes["params"]))
    total = 0
    for leaf in jax.tree.leaves(kept):
        if weights[tuple(leaf.shape)] > 0:
            weights[tuple(leaf.shape)] -= 1
        elif not jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            total += int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
    return total


def _compiled(
    functions: Compiled, state: StatePlan, group: Sequence[Any], seconds: dict[str, float]
) -> tuple[Program, int]:
    """Lower and compile the update. Returns its program and the bytes of its temporary buffers on one device."""
    update: Any = jitted(functions, state.placed, state.everywhere)[0]
    with _timed(seconds, "lower"):
        lowered = update.lower(state.shapes, group)
    with _timed(seconds, "compile"):
        quick = QUICK if state.mesh.devices.flat[0].platform == "cpu" else None
        compiled = lowered.compile(compiler_options=quick)
    analysis = compiled.memory_analysis()
    temporary = 0
    if analysis is not None:
        unshared = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        temporary = analysis.temp_size_in_bytes + max(0, unshared)
    with _timed(seconds, "read"):
        program = read_program(compiled.as_text())
    return program, temporary


def _placed_batch(spec: Mapping[str, Any], rules: Rules, mesh: Mesh) -> Any:
    def placed(leaf: Any) -> Any:
        where = batch_sharding(leaf.shape[0], rules, mesh)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    return jax.tree.map(placed, spec)


def _numbers(shapes: Any) -> int:
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) for leaf in jax.tree.leaves(shapes))


def _tensors(state: StatePlan) -> list[Tensor]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state.shapes)
    found = []
    for path, leaf in leaves:
        part = leaf.sharding.shard_shape(leaf.shape)
        size = int(np.prod(part, dtype=np.int64)) * leaf.dtype.itemsize
        parts = round(np.prod(leaf.shape, dtype=np.float64) / max(1, np.prod(part, dtype=np.float64)))
        copies = state.mesh.size // max(1, parts)
        found.append(Tensor(path_name(path), _shown(leaf.dtype, part), size, _shown(leaf.dtype, leaf.shape), copies))
    return sorted(found, key=lambda one: -one.bytes)


def _shown(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _buffers(program: Program) -> Iterator[Tensor]:
    """Yield what the program makes, one line for each shape, the largest first; with a place where one is known."""
    seen: dict[str, Tensor] = {}
    for line, _ in program.lines():
        if line.kind in _VIEWS or not line.results:
            continue
        largest = max(line.results, key=lambda array: array.bytes)
        source = plain_source(line.source)
        shape = str(largest)
        if shape not in seen or not seen[shape].name:
            seen[shape] = Tensor(source, shape, largest.bytes)
    yield from sorted(seen.values(), key=lambda one: -one.bytes)[:20]


def _note(reports: list[str], text: str) -> None:
    if text not in reports:
        reports.append(text)


class _timed:
    """Notes the seconds of a block under a name."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = time.perf_counter() - self.start
