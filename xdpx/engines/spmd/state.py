"""The state of a run on the devices: one plain tree of arrays, planned before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypedDict

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdpx.engines.spmd.partitioning import Report, logical_axes, shardings_of, silent, without_boxes
from xdpx.engines.spmd.seeds import with_high_bits
from xdpx.utils.axis_splits import Rules


class SpmdState(TypedDict):
    """The state of a run: a plain tree of arrays, donated to each update.

    Attributes:
        step: number of updates taken, int32.
        params: the weights.
        non_trainable: other variables of the model, such as running means.
        opt_state: state of the learner, including averaged weights; None in a state that can only score.
    """

    step: Any
    params: Any
    non_trainable: Any
    opt_state: Any


class SpmdLearner(Protocol):
    """What the engine needs from a learner: pure functions of plain trees."""

    def prepare(self, params_axes: Any) -> None:
        """Take note of the names of the weights' axes; called once, before `init`."""
        ...

    def init(self, params: Any) -> Any:
        """Return the state of the optimizer."""
        ...

    def update(self, grads: Any, opt_state: Any, params: Any, *, step: Any) -> tuple[Any, Any, Mapping[str, Any]]:
        """Return (params, opt_state, facts); with a non-finite gradient both are unchanged and `is_valid_step` is 0."""
        ...

    def averaged(self, opt_state: Any) -> Any:
        """Return the averaged weights, None if none are kept."""
        ...

    def partition(self, opt_state_shapes: Any, params_axes: Any) -> Any:
        """Return the names of the dimensions of each leaf of the optimizer's state."""
        ...


class Outputs(Protocol):
    """Further outputs of a training loss."""

    metrics: Mapping[str, tuple[Any, Any]]
    non_trainable: Any
    summaries: Mapping[str, Any]


class SpmdTask(Protocol):
    """What the engine needs from a task. `variables` are {"params", "non_trainable"}."""

    learner: SpmdLearner
    model: Any

    def init(self, key: Any, batch: Any) -> Mapping[str, Any]:
        """Return all variables, boxed with the names of their dimensions."""
        ...

    def train_loss(self, variables: Mapping[str, Any], batch: Any, key: Any) -> tuple[Any, Any, Outputs]:
        """Return (loss sum, count, further outputs)."""
        ...

    def eval_metrics(self, variables: Mapping[str, Any], batch: Any) -> tuple[Mapping[str, Any], Any, Any]:
        """Return (metrics as (sum, weight), outputs per example, summaries)."""
        ...

    def predict(self, variables: Mapping[str, Any], batch: Any) -> Any:
        """Return predictions."""
        ...

    def decode(self, variables: Mapping[str, Any], batch: Any, key: Any) -> Any:
        """Return decoded output."""
        ...


class Variables(NamedTuple):
    """The part of a state that the model reads."""

    params: Any
    non_trainable: Any

    def as_mapping(self) -> dict[str, Any]:
        """Return the variables in the form that a task takes."""
        return {"params": self.params, "non_trainable": self.non_trainable}


@dataclass(frozen=True)
class StatePlan:
    """A state before it is allocated: shapes, types and shardings of all its arrays.

    Attributes:
        build: returns the state for the lowest 32 bits of a seed, and its static other bits; call it only under `jit`,
            with the other bits as static argument 1. For seeds below 2**32 it has been traced.
        shapes: the state as a tree of `ShapeDtypeStruct`, each with its sharding.
        placed: the state as a tree of `NamedSharding`.
        mesh: the devices.
    """

    build: Callable[..., SpmdState]
    shapes: SpmdState
    placed: SpmdState
    mesh: Mesh

    @property
    def everywhere(self) -> NamedSharding:
        """The sharding of scalars and small arrays: replicated on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def for_scoring(self) -> SpmdState:
        """Return the shapes of a state without an optimizer."""
        return {**self.shapes, "opt_state": None}


def plan_state(task: SpmdTask, spec: Any, rules: Rules, mesh: Mesh, *, report: Report = silent) -> StatePlan:
    """Return shape and sharding of every array of a task's state, without computing or allocating anything.

    Args:
        task: defines the variables and the optimizer's state.
        spec: a batch of `ShapeDtypeStruct`.
        rules: which mesh axes split which logical axis.
        mesh: the grid of devices.
        report: called with a sentence for each dimension that is not split as its rule says.
    """
    axes: dict[str, Any] = {"step": None}

    def build(seed: Any, high: int = 0) -> SpmdState:
        batch = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)), spec)
        boxed = dict(task.init(with_high_bits(jax.random.key(seed), high), batch))
        # Stored as a side effect of tracing: a second trace would take seconds for a large model.
        axes["params"] = _plain(logical_axes(boxed["params"]))
        axes["non_trainable"] = _plain(logical_axes(boxed.get("non_trainable", {})))
        task.learner.prepare(axes["params"])
        values = without_boxes(boxed)
        params = _plain(values["params"])
        return {
            "step": jnp.zeros((), jnp.int32),
            "params": params,
            "non_trainable": _plain(values.get("non_trainable", {})),
            "opt_state": task.learner.init(params),
        }

    # As the engine calls it: JAX keeps the trace, from which the state is then built without another one.
    shapes = jax.jit(build, static_argnums=1).eval_shape(jax.ShapeDtypeStruct((), jnp.uint32), 0)
    axes["opt_state"] = task.learner.partition(shapes["opt_state"], axes["params"])
    placed = shardings_of(shapes, axes, rules, mesh, report=report)
    wanted = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), shapes, placed
    )
    return StatePlan(build, wanted, placed, mesh)


def _plain(tree: Any) -> Any:
    """Return nested plain dicts for nested mappings of any kind, with the same names."""
    return {name: _plain(branch) for name, branch in tree.items()} if isinstance(tree, Mapping) else tree
