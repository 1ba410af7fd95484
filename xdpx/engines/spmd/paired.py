"""The engine of x-train on JAX: models, weights, batches and names as on PyTorch, computed by `SpmdEngine`.

The model is first built in PyTorch on the host, which defines its random or pretrained weights, its parameter groups
and its names. So both engines start from the same weights, and each can load weights that the other has saved.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.engines.base import (
    Batch,
    Facts,
    GradientSize,
    OutOfMemory,
    Predictions,
    ReadWeights,
    Schedule,
    Traced,
    rates_of,
    resume_schedule,
    schedule_state,
)
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.engines.spmd import transfer
from xdpx.engines.spmd.engine import FORMAT, SpmdEngine, SpmdOptions
from xdpx.engines.spmd.mesh import mesh_text
from xdpx.engines.spmd.partitioning import batch_axes, path_name
from xdpx.engines.spmd.shapes import bucket, multiple
from xdpx.engines.spmd.state import SpmdState
from xdpx.engines.spmd.steps import SUM
from xdpx.logger import log
from xdpx.utils.axis_splits import Rules
from xdpx.utils.seeds import seeded

COMMON_FACTS = ("loss_sum", "count", "num_tokens", "grad_norm", "clipped", "learning_rate")
FROM_HOST = ("target", "query_id")
"""Predictions that are copied from the batch on the host."""


class Layout(Protocol):
    """What the engine needs to know about a model: the layout of its batches, and the names of its weights."""

    exchange: Any
    positions: int

    def shape_of(self, batch: Batch) -> Any:
        """Return the shape of a batch: rows, width, guessed."""
        ...

    def arranged(self, batch: Batch, shape: Any) -> dict[str, Any]:
        """Return a batch padded to a shape."""
        ...

    def example(self, rows: int) -> dict[str, Any]:
        """Return the smallest batch."""
        ...


class Pair(NamedTuple):
    """The JAX counterpart of a PyTorch task.

    Attributes:
        task: as `SpmdEngine` takes it.
        layout: of batches and weights.
        facts: names of the sums that the loss returns.
        rule: the optimizer's update rule, for `rates`; None in an engine that only scores.
    """

    task: Any
    layout: Layout
    facts: tuple[str, ...]
    rule: Any


@dataclass(frozen=True)
class PairedOptions:
    """Settings of the engine.

    Attributes:
        seed: with the number of the update, decides all randomness of an update.
        batch_size: rows of a batch; smaller batches are padded to it.
        precision: of matrix products, as `jax.default_matmul_precision` takes it; None leaves the backend's default.
        ema_decay: setting of the learner, compared with that of a checkpoint.
    """

    seed: int
    batch_size: int
    precision: str | None = None
    ema_decay: float = 1.0


@dataclass
class PairedState:
    """The state of a `PairedEngine`. Only the engine looks inside.

    Attributes:
        arrays: on the devices.
        task: on the host: turns predictions into metrics and rows. Its model has names and shapes, but no weights.
        num_updates: number of updates taken.
    """

    arrays: Any
    task: Any
    num_updates: int = 0


class PairedEngine:
    """Implements `engines.base.Engine` for x-train, x-eval and x-pred.

    Args:
        make_task: makes the PyTorch task; the seed of `start` decides its random weights.
        pair_with: returns the JAX counterpart of a task.
        mesh: the devices.
        rules: which mesh axes split which logical axis.
        options: see `PairedOptions`.
        schedule: learning rate factors by update number.
        read_weights: reads a file of pretrained weights; None does not load any.
    """

    packages = ("jax", "jaxlib", "flax", "optax")
    events = ()
    """An update is a single program on the devices, so no events happen inside it."""

    def __init__(
        self,
        make_task: Callable[[], Any],
        pair_with: Callable[[Any], Pair],
        *,
        mesh: Mesh,
        rules: Rules,
        options: PairedOptions,
        schedule: Schedule | None = None,
        read_weights: ReadWeights | None = None,
    ) -> None:
        self.options = options
        self._make_task, self._pair_with = make_task, pair_with
        self._mesh, self._rules = mesh, rules
        self._schedule, self._read_weights = schedule, read_weights
        self.tell: Callable[[str], object] = str  # never called, for there are no `events`
        self.hear_nonfinite: Callable[[int], object] = str  # never called: the host does not look at each update
        self.checks_each = False
        self._ended: Any = None  # on the devices: 1, or NaN from the first non-finite update on
        self._built: tuple[SpmdEngine, Pair] | None = None
        self._aliases: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}
        self._rows = multiple(options.batch_size, self._shards)

    # ---- states

    def start(self, seed: int) -> PairedState:
        """Build the model under `seed` on the host, load pretrained weights, and put everything onto the devices."""
        host = self._host_task(seed)
        if self._read_weights is not None:
            host.model.load_pretrained(self._read_weights)
        engine, pair = self._engine_for(host)
        params = self._placed(host, engine, pair)
        if pair.rule is None:
            return self._state(self._for_scoring(params), host)
        plan, learner = engine.plan, pair.task.learner

        def begin(weights: Any) -> dict[str, Any]:
            return {"step": np.int32(0), "params": weights, "non_trainable": {}, "opt_state": learner.init(weights)}

        return self._state(jax.jit(begin, out_shardings=plan.placed)(params), host)

    def snapshot(self, state: PairedState, *, wanted: bool | None = None) -> dict[str, Any]:
        """Copy everything to the host."""
        engine, pair = self._parts()
        told = {"rule": type(pair.rule).__name__, "ema_decay": self.options.ema_decay}
        return {**engine.snapshot(state.arrays, wanted=wanted), **told, "schedule": schedule_state(self._schedule)}

    def restore(self, saved: Mapping[str, Any]) -> PairedState:
        """Rebuild a state from its snapshot, on this mesh.

        Raises:
            ConfigError: the snapshot is of the other engine, another model, optimizer or kind of run.
        """
        if saved.get("format") != FORMAT:
            problem = f"is spmd, but the checkpoint is of another engine ('{saved.get('format')}')."
            remedy = "Resume on the engine that it was made with; a new run can take its weights as pretrained_model."
            raise refusal("engine", problem, remedy)
        host = self._host_task(self.options.seed)
        engine, pair = self._engine_for(host)
        now = {"rule": type(pair.rule).__name__, "ema_decay": self.options.ema_decay}
        keys = {"rule": "optimizer", "ema_decay": "ema_decay"}
        faults = [
            Fault(keys[name], f"is {value} here, but {saved.get(name)} in the checkpoint.", "Resume with the same.")
            for name, value in now.items()
            if saved.get(name) != value
        ]
        if faults:
            raise ConfigError(THIS_RUN, faults)
        resume_schedule(self._schedule, saved)
        return self._state(engine.restore(saved), host, saved["num_updates"])

    def weights(self, state: PairedState) -> dict[str, Any]:
        """Return the weights to save, by PyTorch's names, float32, on the host: averaged ones if there are any."""
        import torch

        _, pair = self._parts()
        arrays = state.arrays
        kept = None if arrays["opt_state"] is None else pair.task.learner.averaged(arrays["opt_state"])
        host = jax.tree.map(transfer.array_to_host, arrays["params"] if kept is None else kept)
        table = {name: torch.from_numpy(np.array(value)) for name, value in pair.layout.exchange.give(host).items()}
        # A tied tensor is returned under all of its names.
        return {name: table[self._aliases.get(name, name)] for name in [*table, *self._aliases]}

    def with_weights(self, weights: Mapping[str, Any]) -> PairedState:
        """Return a state that can only score.

        Raises:
            ConfigError: the weights belong to another model.
        """
        from xdpx.engines.pytorch.state import fill_model

        host = self._host_task(self.options.seed)
        fill_model(host.model, weights, source="checkpoint")
        return self._state(self._for_scoring(self._placed(host, *self._engine_for(host))), host)

    # ---- steps

    def update(self, state: PairedState, group: Sequence[Batch]) -> tuple[PairedState, Facts]:
        """Take one update; the previous arrays of `state` are donated. See `engines.base.Engine.update`."""
        engine, pair = self._parts()
        number = state.num_updates + 1
        rates = jax.device_put(pair.rule.rates(*rates_of(self._schedule, number)), engine.plan.everywhere)
        if self._ended is not None:
            rates = {**rates, "factor": rates["factor"] * self._ended}
        before: SpmdState = state.arrays
        arrays: SpmdState = {**before, "opt_state": {**before["opt_state"], "rates": rates}}
        batches = self._arranged(group)
        try:
            with _told_of_compiling(engine):
                state.arrays, facts = engine.update(arrays, batches)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"memory ran out in update {number}. Lower batch_size and raise update_freq, set "
                "gradient_checkpointing: true, or let devices share the weights: mesh: [1, -1, 1]."
            ) from error
        state.num_updates = number
        norm = facts["grad_norm"]
        self._ended = _still(np.float32(1.0) if self._ended is None else self._ended, norm.vector, norm.index)
        self._sizes = {name: fact for name, fact in facts.items() if name.startswith(pair.task.learner.SIZE)}
        of_loss = {name: facts[f"{SUM}{name}"] for name in pair.facts}
        return state, {name: facts[name] for name in COMMON_FACTS} | of_loss

    def origin(self, state: PairedState, group: Sequence[Batch], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appears. See `engines.base.Updater.origin`."""
        engine, _ = self._parts()
        return engine.origin(state.arrays, self._arranged(group), number)

    def again(self, state: PairedState, saved: Mapping[str, Any], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appeared in a saved update. See `engines.base.Updater.again`."""
        del state
        return self.origin(self.restore(saved["state"]), saved["group"], number)

    def traced(self, state: PairedState, folder: str) -> AbstractContextManager[Traced]:
        """Return a context manager that traces the updates inside it with jax.profiler."""
        return self._parts()[0].traced(state.arrays, folder)

    def score(self, state: PairedState, batch: Batch) -> Predictions:
        """Return the loss's predictions for one batch, with averaged weights when kept."""
        engine, _ = self._parts()
        (arranged,) = self._arranged([batch])
        with _told_of_compiling(engine):
            found = engine.predict(state.arrays, arranged)
        beside = {name: np.asarray(batch[name]) for name in FROM_HOST if name in batch and "prob" in found}
        return Scored({**found, **beside}, rows=len(batch["id"]))

    def take_score(self, state: PairedState, score: float) -> None:
        """Pass a score to the schedule."""
        if self._schedule is not None:
            self._schedule.take_score(score)

    def is_finite(self, state: PairedState) -> bool:
        """Return whether every weight is finite."""
        return self._parts()[0].is_finite(state.arrays)

    def gradient_sizes(self, state: PairedState) -> dict[str, GradientSize]:
        """Return the size of the gradient of each weight by PyTorch's name, divided and clipped."""
        found, size = transfer.to_float(self._sizes), self._parts()[1].task.learner.SIZE
        names = [name.removeprefix(f"{size}mean/") for name in found if name.startswith(f"{size}mean/")]
        return {name: GradientSize(*(found[f"{size}{part}/{name}"] for part in GradientSize._fields)) for name in names}

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device, once, and return plain floats."""
        return transfer.to_float(facts)

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return NumPy arrays of the rows that a batch really had, and floats for single numbers."""
        host = transfer.tree_to_host(dict(predictions))
        rows = predictions.rows if isinstance(predictions, Scored) else None
        return {name: value[:rows] if isinstance(value, np.ndarray) else value for name, value in host.items()}

    # ---- what is told

    @property
    def device_text(self) -> str:
        """The JAX version, the mesh and the host's processor."""
        host = platform.processor() or platform.machine()
        return f"jax {jax.__version__}, mesh {mesh_text(self._mesh)} ({host})"

    def model_and_optimizer(self, state: PairedState) -> tuple[Any, Any]:
        """Return the host's model, which has names and shapes but no weights, and None for the optimizer."""
        return state.task.model, None

    def closing_line(self) -> str:
        """Return how many programs were compiled."""
        counts = self._parts()[0].compilations
        return f"compiled {sum(counts.values())} programs for {len(counts)} functions and shapes of batches"

    # ---- inside

    @property
    def _shards(self) -> int:
        return int(np.prod([self._mesh.shape[axis] for axis in batch_axes(self._rules, self._mesh)]))

    def _host_task(self, seed: int) -> Any:
        import torch  # noqa: F401 # only what was imported is seeded

        with seeded(seed):
            return self._make_task()

    def _engine_for(self, host: Any) -> tuple[SpmdEngine, Pair]:
        if self._built is None:
            pair = self._pair_with(host)
            example = pair.layout.example(self._shards)
            spec = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in example.items()}
            options = SpmdOptions(seed=self.options.seed, precision=self.options.precision)
            engine = SpmdEngine(pair.task, mesh=self._mesh, rules=self._rules, options=options, spec=spec)
            self._built = engine, pair
            self._aliases = _aliases_of(host.model, set(pair.layout.exchange.names()))
        return self._built

    def _parts(self) -> tuple[SpmdEngine, Pair]:
        if self._built is None:
            raise RuntimeError("this is a bug: the engine was used before start, restore or with_weights.")
        return self._built

    def _placed(self, host: Any, engine: SpmdEngine, pair: Pair) -> Any:
        """Return the weights of the host's model as arrays on the devices, sharded as planned."""
        table = {name: value.detach().float().numpy() for name, value in host.model.state_dict().items()}
        tree = pair.layout.exchange.take({name: table[name] for name in table if name not in self._aliases})
        target = engine.plan.shapes["params"]
        flat = {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
        wrong = transfer.mismatches(flat, target)
        if wrong:
            raise RuntimeError(f"this is a bug: the model has another form on JAX: {'; '.join(wrong)}")
        return transfer.from_tensors(flat, target)

    def _for_scoring(self, params: Any) -> dict[str, Any]:
        engine, _ = self._parts()
        step = jax.device_put(np.int32(0), engine.plan.everywhere)
        return {"step": step, "params": params, "non_trainable": {}, "opt_state": None}

    def _state(self, arrays: Any, host: Any, num_updates: int = 0) -> PairedState:
        host.model.to("meta")  # the weights live on the devices now; what is left is names and shapes
        return PairedState(arrays, host, num_updates)

    def _arranged(self, group: Sequence[Batch]) -> list[dict[str, Any]]:
        """Return the batches of a group padded to one shape, out of few possible ones."""
        _, pair = self._parts()
        shapes = [pair.layout.shape_of(batch) for batch in group]
        rows, width, guessed = (max(sizes) for sizes in zip(*shapes, strict=True))
        width = bucket(width, pair.layout.positions)
        rows = max(self._rows, multiple(rows, self._shards))
        shape = shapes[0]._replace(rows=rows, width=width, guessed=bucket(guessed, width) if guessed else 0)
        return [pair.layout.arranged(batch, shape) for batch in group]


class Scored(dict[str, Any]):
    """Predictions of a padded batch.

    Attributes:
        rows: number of its rows that are not padding.
    """

    def __init__(self, values: Mapping[str, Any], *, rows: int) -> None:
        super().__init__(values)
        self.rows = rows


@partial(jax.jit, static_argnums=2)
def _still(factor: Any, facts: Any, index: int) -> Any:
    """Return the factor, or NaN if the norm is not finite: a learner leaves out updates with a NaN learning rate."""
    return jnp.where(jnp.isfinite(facts[index]), factor, jnp.nan)


@contextmanager
def _told_of_compiling(engine: SpmdEngine) -> Generator[None]:
    """Log if something was compiled inside the block, and how long the block took."""
    before, begun = sum(engine.compilations.values()), time.perf_counter()
    yield
    number = sum(engine.compilations.values())
    if number > before:
        log.info(f"compilation {number}: {list(engine.compilations)[-1]}, {time.perf_counter() - begun:.1f} s")


def _aliases_of(model: Any, names: set[str]) -> dict[str, str]:
    """Return {another name of a tied tensor: the name that it is exchanged under}."""
    tensors = dict(model.state_dict(keep_vars=True))
    canonical = {id(value): name for name, value in tensors.items() if name in names}
    return {
        name: canonical[id(value)] for name, value in tensors.items() if name not in names and id(value) in canonical
    }
