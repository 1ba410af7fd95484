"""The JAX engine on a mesh of devices: optimizer updates, evaluation steps, snapshots."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, first_line
from xdpx.engines.base import Batch, Facts, GradientSize, OutOfMemory, Predictions, Traced
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.engines.spmd import kept_programs, profiling, transfer, world
from xdpx.engines.spmd.launch_programs import LaunchPrograms
from xdpx.engines.spmd.noted import NotedMeans
from xdpx.engines.spmd.partitioning import idle_axes
from xdpx.engines.spmd.retracing import Retraces
from xdpx.engines.spmd.seeds import WORD, key_of
from xdpx.engines.spmd.state import SpmdState, SpmdTask, plan_state
from xdpx.engines.spmd.steps import NOTED, SIZES, Compiled, Surroundings, jitted
from xdpx.engines.spmd.tracing_back import origin_of
from xdpx.logger import log
from xdpx.utils.axis_splits import Rules

FORMAT = "xdpx-spmd-1"
ROOM_FOR_COPY = 1.25
"""Required free memory of a device as a multiple of a copy of the state on it: free memory is fragmented."""
INFLIGHT_IMITATED = 2
"""Eight simulated devices on two cores deadlocked within 1000 updates without a limit, and never with a limit of 2."""


@dataclass(frozen=True)
class SpmdOptions:
    """Settings of the engine.

    Attributes:
        seed: with the number of the update, decides all randomness of an update.
        precision: of float32 matrix products, as `jax.default_matmul_precision` takes it ("highest", "bfloat16", ...);
            None leaves the backend's default.
        score_averaged: score and decode with the averaged (EMA) weights, if the learner keeps them.
        max_inflight: number of updates that may be queued on the device before the host waits for the oldest; 0 is no
            limit, except for simulated devices: their collectives share few threads, and deadlock if many are queued.
        sizes: whether updates compute the gradient sizes for `gradient_sizes`.
    """

    seed: int = 1234
    precision: str | None = None
    score_averaged: bool = True
    max_inflight: int = 2
    sizes: bool = False


def functions_of(task: SpmdTask, mesh: Mesh, rules: Rules, options: SpmdOptions, retraces: Retraces) -> Compiled:
    """Return the functions to compile for a task under some options, for the engine that runs it or a plan of it."""
    around = Surroundings(mesh, rules, options.precision)
    return Compiled(
        task, around, options.seed, retraces, averaged=options.score_averaged, places={}, sizes=options.sizes
    )


class SpmdEngine:
    """Implements `engines.base.Updater` on a mesh of devices, of one process or many. Building it allocates nothing.

    Args:
        task: what is computed; see `state.SpmdTask`.
        mesh: the devices, from `mesh.make_mesh`.
        rules: which mesh axes split which logical axis.
        options: see `SpmdOptions`.
        spec: a batch of `ShapeDtypeStruct`, from which the model gets its shapes.
        identity: text that tells the task from all others, by which restarts find its compiled programs; "" lets each
            start trace them. See `launch_programs`.

    Attributes:
        plan: shapes and shardings of the whole state.
        reports: one sentence per dimension that could not be split as its rule says.
    """

    events = ()
    """An update is a single program on the devices, so no events happen inside it."""

    def __init__(
        self,
        task: SpmdTask,
        *,
        mesh: Mesh,
        rules: Rules,
        options: SpmdOptions | None = None,
        spec: Any,
        identity: str = "",
    ) -> None:
        self.task, self.mesh, self.rules, self.options = task, mesh, rules, options or SpmdOptions()
        self.reports: list[str] = []
        self.tell: Callable[[str], object] = str  # never called, for there are no `events`
        self.hear_nonfinite: Callable[[int], object] = str  # never called: the host does not look at each update
        self.checks_each = False
        self._retraces = Retraces()
        self.plan = plan_state(task, spec, rules, mesh, report=self._report)
        idle = idle_axes(jax.tree.leaves(self.plan.placed), rules, mesh)
        if idle:
            self._report(
                f"no weight and no rows of a batch are split over {' and '.join(idle)} of the mesh: unless activations "
                "are, its devices all compute the same."
            )
        self._placer = transfer.Placer(rules, mesh, self._report)
        self._compiled = functions_of(task, mesh, rules, self.options, self._retraces)
        finite = jax.jit(_all_finite, out_shardings=self.plan.everywhere)
        copied = jax.jit(_copied, out_shardings=self.plan.placed)
        functions: Sequence[Any] = (*jitted(self._compiled, self.plan.placed, self.plan.everywhere), finite, copied)
        imitated = mesh.size > 1 and mesh.devices.flat[0].platform == "cpu"
        if imitated and world.process_count() > 1:
            told = identity and repr([identity, self.options, rules, mesh])
            programs = LaunchPrograms(told, self._compiled.places)
            names = ("update", "score", "predict", "decode", "finite", "copied")
            functions = [*map(partial(BegunTogether, programs), names, functions)]
        self._update, self._score, self._predict, self._decode, self._finite, self._copied = functions
        self._build = jax.jit(self.plan.build, static_argnums=1, out_shardings=self.plan.placed)
        self._noted, self._sizes = NotedMeans(), dict[str, Any]()
        self._inflight: deque[Any] = deque()
        self._most_inflight = self.options.max_inflight or (INFLIGHT_IMITATED if imitated else 0)

    def model_and_optimizer(self, state: SpmdState) -> tuple[Any, Any]:
        """Return (None, None): model and optimizer are only arrays on the devices."""
        return None, None

    @property
    def compilations(self) -> Counter[str]:
        """How often each function was compiled for each shape of batch; expected to be 1."""
        return self._retraces.counts

    @property
    def target(self) -> SpmdState:
        """The state as shapes with shardings, into which a checkpoint is restored."""
        return self.plan.shapes

    def start(self, seed: int) -> SpmdState:
        """Build weights and optimizer state, sharded; the values do not depend on the mesh."""
        state: SpmdState = self._build(np.uint32(seed % WORD), seed // WORD)
        return state

    def put(self, batch: Batch) -> Any:
        """Return global arrays from the rows of this process; `update` and `score` call it if that was not done yet."""
        return self._placer.put(batch)

    def update(self, state: SpmdState, group: Sequence[Batch]) -> tuple[SpmdState, Facts]:
        """Take one update; `state` is donated and cannot be used afterwards. See `engines.base.Engine.update`."""
        batches = tuple(self._there(batch) for batch in group)
        try:
            state, vector, found = self._update(state, batches)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise _out_of_memory(error) from error
            raise
        self._noted.add(found[NOTED])
        self._sizes = found.get(SIZES, {})
        self._hold_back(vector)
        return state, transfer.StepFacts(vector, self._compiled.places)

    def origin(self, state: SpmdState, group: Sequence[Batch], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appears. See `engines.base.Updater.origin`. Compiles another program."""
        step = np.int32(number - 1)
        key = jax.random.fold_in(key_of(self.options.seed), step)
        keys = [jax.random.fold_in(key, index) for index in range(len(group))]
        once = partial(self._compiled.take_again, step=step, mean=len(group) == 1)
        return origin_of(state, [self._there(batch) for batch in group], keys, once)

    def again(self, state: SpmdState, saved: Mapping[str, Any], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appeared in a saved update. See `engines.base.Updater.again`."""
        del state
        return self.origin(self.restore(saved["state"]), saved["group"], number)

    @contextmanager
    def traced(self, state: SpmdState, folder: str) -> Generator[Traced]:
        """Trace updates with jax.profiler, for TensorBoard and Perfetto. Reports no modules, only operations."""
        with profiling.traced(folder) as found:
            try:
                yield found
            finally:
                if self._inflight:
                    self._inflight[-1].block_until_ready()

    def score(self, state: SpmdState, batch: Batch) -> Predictions:
        """Return the sums of all metrics, as `steps.sums_of` names them, and the outputs per example."""
        found: Predictions = self._scored(self._score, state, batch)
        return found

    def predict(self, state: SpmdState, batch: Batch) -> Predictions:
        """Return the task's predictions."""
        found: Predictions = self._scored(self._predict, state, batch)
        return found

    def decode(self, state: SpmdState, batch: Batch, *, index: int = 0) -> Any:
        """Return the task's decoded output for a batch, on the device.

        Args:
            state: any state, including one that can only score.
            batch: the input.
            index: of the batch, so that batches decoded at the same step use different random numbers.
        """
        return self._scored(self._decode, state, batch, np.int32(index))

    def take_summaries(self) -> dict[str, float]:
        """Return the mean of each summary of the layers over the updates since the last call. Waits for the devices.

        Updates that were skipped do not count.
        """
        return self._noted.take()

    def gradient_sizes(self, state: SpmdState) -> dict[str, GradientSize]:
        """Return the gradient size of each weight before clipping; {} unless the option `sizes` is set."""
        found = jax.device_get(self._sizes)
        return {name: GradientSize(*map(float, numbers)) for name, numbers in found.items()}

    def snapshot(self, state: SpmdState, *, wanted: bool | None = None) -> dict[str, Any]:
        """Copy everything to the host of every process, unsharded, as torch tensors by name; on all processes.

        For models that fit on the host. `checkpoints.spmd_files` instead writes each shard from where it is.
        """
        del wanted
        return {
            "format": FORMAT,
            "num_updates": int(transfer.array_to_host(state["step"])),
            "tensors": transfer.to_tensors(state),
        }

    def restore(self, saved: Mapping[str, Any]) -> SpmdState:
        """Rebuild the state of a snapshot, on this mesh.

        Raises:
            ConfigError: the snapshot is of another model, optimizer or kind of run.
        """
        if saved.get("format") != FORMAT:
            raise _fault("format", [f"is {saved.get('format')!r}; this engine reads {FORMAT!r}"])
        return self._filled(saved["tensors"], self.target)

    def weights(self, state: SpmdState) -> dict[str, Any]:
        """Return a copy of the weights to save, by name, as tensors; averaged ones if scoring uses them."""
        kept = None
        if self.options.score_averaged and state["opt_state"] is not None:
            kept = self.task.learner.averaged(state["opt_state"])
        found = transfer.to_tensors(
            {
                "params": state["params"] if kept is None else kept,
                "non_trainable": state["non_trainable"],
            }
        )
        return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}

    def is_finite(self, state: SpmdState) -> bool:
        """Return whether every weight is finite; on all processes. Waits for the devices once."""
        return bool(transfer.array_to_host(self.finite(state)))

    def finite(self, state: SpmdState) -> jax.Array:
        """Return whether every weight is finite, still being computed, on every device; on all processes."""
        found: jax.Array = self._finite(state["params"])
        return found

    def copied(self, state: SpmdState) -> SpmdState | None:
        """Return a copy of the state on the devices, still being computed; None if those of this process lack memory.

        Later updates, which are donated the state, leave the copy as it is. Processes may get different answers, except
        on CPUs, which always copy.
        """
        if not all(_has_room(device, state) for device in self.mesh.local_devices):
            return None
        found: SpmdState = self._copied(state)
        return found

    def with_weights(self, weights: Mapping[str, Any]) -> SpmdState:
        """Return a state that can only score.

        Raises:
            ConfigError: the weights belong to another model.
        """
        return self._filled({**weights, "step": np.zeros((), np.int32)}, self.plan.for_scoring())

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device, once, and return plain floats."""
        return transfer.to_float(facts)

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return NumPy arrays for values with rows (only this process's rows) and floats for scalars."""
        host: dict[str, Any] = transfer.tree_to_host(dict(predictions))
        return host

    def _there(self, batch: Batch) -> Any:
        # Checking the first array suffices: a batch is put onto the devices as a whole.
        first = jax.tree.leaves(batch)[0]
        return batch if isinstance(first, jax.Array) else self._placer.put(batch)

    def _scored(self, function: Any, state: SpmdState, batch: Batch, *more: Any) -> Any:
        found = function(state, self._there(batch), *more)
        self._hold_back(jax.tree.leaves(found)[0])
        return found

    def _hold_back(self, output: Any) -> None:
        """Limit how far the host runs ahead to `max_inflight`: each queued update keeps its batch in memory."""
        if self._most_inflight:
            self._inflight.append(output)
            if len(self._inflight) > self._most_inflight:
                self._inflight.popleft().block_until_ready()

    def _filled(self, tensors: Mapping[str, Any], target: SpmdState) -> SpmdState:
        wrong = transfer.mismatches(tensors, target)
        if wrong:
            raise _fault("checkpoint", wrong)
        state: SpmdState = transfer.from_tensors(tensors, target)
        return state

    def _report(self, sentence: str) -> None:
        if sentence not in self.reports:
            self.reports.append(sentence)
            log.warning(sentence)


def _copied(state: Any) -> Any:
    return jax.tree.map(jnp.copy, state)


def _has_room(device: jax.Device, state: Any) -> bool:
    """Return whether a device had the memory for a copy of its part of a state at all times so far."""
    told = device.memory_stats()
    if not told:  # a CPU
        return True
    shards = [shard for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards if shard.device == device]
    free = told["bytes_limit"] - told["peak_bytes_in_use"]
    return bool(free > ROOM_FOR_COPY * sum(shard.data.nbytes for shard in shards))


def _all_finite(params: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]).all()


class BegunTogether:
    """A jitted function that no process runs before all have compiled it; call it on all processes.

    On CPUs, collectives (gloo) connect when they first run, and give up after 30 seconds: on a busy machine, two
    processes may finish compiling further apart than that.

    Args:
        programs: where a restart finds what was compiled.
        name: of the function, unique among those of `programs`.
        function: the jitted function.
    """

    def __init__(self, programs: LaunchPrograms, name: str, function: Any) -> None:
        self._programs, self._name, self._function = programs, name, function
        self._compiled: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Return the result of the function."""
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)) for leaf in leaves)
        if key not in self._compiled:
            self._compiled[key] = self._programs.read(self._name, args) or self._traced(args)
            world.barrier("compiled")
        return self._compiled[key](*args)

    def _traced(self, args: tuple[Any, ...]) -> Any:
        lowered = self._function.lower(*args)
        program, content = kept_programs.compiled(lowered)
        if content is not None:
            self._programs.write(self._name, args, lowered.out_tree, content)
        return program


def _fault(key: str, problems: Sequence[str]) -> ConfigError:
    remedy = "Resume with the model and the optimizer that the checkpoint was made with."
    return ConfigError(THIS_RUN, [Fault(key, f"{problem}.", remedy) for problem in problems])


def _out_of_memory(error: jax.errors.JaxRuntimeError) -> OutOfMemory:
    return OutOfMemory(
        f"memory ran out in an update ({first_line(error)}). Cut the batch into more micro-batches, shard weights over "
        "more devices (ICI_MESH_SHAPE), choose a remat policy that saves less, or lower batch_size. --plan shows what "
        "takes how much."
    )
