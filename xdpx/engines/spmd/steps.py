"""The functions to compile: an update from a group of micro-batches, an evaluation step, a prediction, a decoding step.

Each is traced once per shape of batch. The mesh and the rules are set only while tracing, so they cost calls nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import Mesh, PartitionSpec

from xdpx.engines.spmd.noted import mean_of, packed
from xdpx.engines.spmd.partitioning import path_name, rules_on, spec_of
from xdpx.engines.spmd.retracing import Retraces
from xdpx.engines.spmd.seeds import key_of
from xdpx.engines.spmd.state import SpmdState, SpmdTask, Variables
from xdpx.utils.axis_splits import Rules

RENAMED = {"raw_grad_norm": "grad_norm"}
"""Facts of a learner that engines report under another name."""

_step: ContextVar[Any] = ContextVar("step", default=0)


def step_being_traced() -> Any:
    """Return the number of updates before the one being traced, an int32; 0 outside of updates."""
    return _step.get()


@contextmanager
def tracing_step(step: Any) -> Generator[None]:
    """Make `step_being_traced` return `step` inside the block."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


@dataclass(frozen=True)
class Surroundings:
    """Settings in effect while a function is traced.

    Attributes:
        mesh: the devices over which activations are laid out.
        rules: which mesh axes split which logical axis.
        precision: of matrix products, as `jax.default_matmul_precision` takes it; None leaves the backend's own.
    """

    mesh: Mesh
    rules: Rules
    precision: str | None = None

    @contextmanager
    def set(self) -> Generator[None]:
        """Apply all settings inside the block."""
        with ExitStack() as stack:
            stack.enter_context(jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh))
            stack.enter_context(nn.logical_axis_rules(rules_on(self.mesh, self.rules)))
            if self.precision is not None:
                stack.enter_context(jax.default_matmul_precision(self.precision))
            yield


SIZES = "gradient sizes"
"""Key in the third result of an update, if requested: mean, largest and fraction of zeros of each gradient."""

SUM, WEIGHT = "sum of ", "weight of "
"""Prefixes of the two numbers of each metric: a metric may be named `count`, and others `kl` and `kl_weight`."""

NOTED = "summaries/"
"""Prefix of the names of layers' summaries among the results of scoring, and the key of all of them in an update's."""


@dataclass(frozen=True)
class Compiled:
    """The functions of one task, to be compiled.

    Attributes:
        task: what is computed.
        around: settings while tracing.
        seed: with the number of updates, decides all randomness.
        retraces: counts traces.
        averaged: whether scoring uses the averaged weights, if there are any.
        places: index of each fact in the vector that `update` returns; filled when `update` is traced.
        sizes: whether an update returns the sizes of gradients.
    """

    task: SpmdTask
    around: Surroundings
    seed: int
    retraces: Retraces
    averaged: bool
    places: dict[str, int]
    sizes: bool = False

    def update(self, state: SpmdState, group: Sequence[Any]) -> tuple[SpmdState, Any, dict[str, Any]]:
        """Take one update from micro-batches.

        Returns:
            (state, facts as one float32 vector in the order of `places`, what layers recorded as `noted.packed` under
            NOTED, and gradient sizes under SIZES if they are wanted).
        """
        self.retraces.note("update", group)
        with self.around.set(), tracing_step(state["step"]):
            return self._update(state, group)

    def _update(self, state: SpmdState, group: Sequence[Any]) -> tuple[SpmdState, Any, dict[str, Any]]:
        key = jax.random.fold_in(key_of(self.seed), state["step"])
        sums, grads, non_trainable, noted = self._accumulated(state, group, key)
        sizes = {SIZES: sizes_of(grads)} if self.sizes else {}
        params, opt_state, learned = self.task.learner.update(
            grads, state["opt_state"], state["params"], step=state["step"]
        )
        valid = jnp.asarray(learned.get("is_valid_step", 1.0), jnp.float32)
        new: SpmdState = {
            "step": state["step"] + 1,
            "params": params,
            "non_trainable": jax.tree.map(
                lambda after, before: jnp.where(valid > 0, after, before), non_trainable, state["non_trainable"]
            ),
            "opt_state": opt_state,
        }
        _refuse_drift(state, new)
        facts = sums | {RENAMED.get(name, name): value for name, value in learned.items()} | {"skipped": 1.0 - valid}
        return new, self._packed(facts), {NOTED: packed(noted, valid), **sizes}

    def _accumulated(self, state: SpmdState, group: Sequence[Any], key: Any) -> tuple[Any, Any, Any, Any]:
        """Return (sums of facts, gradient of the mean loss, non-trainable variables, means of summaries)."""
        if len(group) == 1:
            # Dividing the loss instead of each gradient saves a pass over all of them.
            key = jax.random.fold_in(key, 0)
            return self._gradients(state["params"], state["non_trainable"], group[0], key, mean=True)
        sums, grads, non_trainable, summaries = self._added_up(state, group, key)
        divisor = _divisor(sums["count"])
        grads = jax.tree.map(lambda grad, weight: (grad / divisor).astype(weight.dtype), grads, state["params"])
        return sums, grads, non_trainable, summaries

    def _added_up(self, state: SpmdState, group: Sequence[Any], key: Any) -> tuple[Any, Any, Any, Any]:
        """Return (sums of facts, gradient of the sum of losses, non-trainable variables, means of summaries)."""
        if len({str(jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), batch)) for batch in group}) == 1:
            return self._scanned(state, group, key)
        total: Any = None
        noted: list[Any] = []
        non_trainable = state["non_trainable"]
        for index, batch in enumerate(group):
            sums, grads, non_trainable, summaries = self._gradients(
                state["params"], non_trainable, batch, jax.random.fold_in(key, index)
            )
            found = (sums, widened(grads))
            total = found if total is None else jax.tree.map(jnp.add, total, found)
            noted.append(summaries)
        return *total, non_trainable, mean_of(noted)

    def _scanned(self, state: SpmdState, group: Sequence[Any], key: Any) -> tuple[Any, Any, Any, Any]:
        """Add up micro-batches of one shape in a loop on the device: the program stays as small as for one."""
        # Jitted, so that what is traced for the shapes is reused in the loop; inlined, so that the program is the same.
        gradients = jax.jit(self._gradients, inline=True)

        def one(carried: tuple[Any, Any], part: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
            (total, non_trainable), (index, batch) = carried, part
            sums, grads, non_trainable, summaries = gradients(
                state["params"], non_trainable, batch, jax.random.fold_in(key, index)
            )
            return (jax.tree.map(jnp.add, total, (sums, widened(grads))), non_trainable), summaries

        def first(batches: Any) -> Any:
            batch = jax.tree.map(lambda leaf: leaf[0], batches)
            return gradients(state["params"], state["non_trainable"], batch, key)

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *group)
        shapes = jax.eval_shape(first, stacked)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (shapes[0], widened_shapes(shapes[1])))
        start = (zeros, state["non_trainable"])
        (total, non_trainable), summaries = jax.lax.scan(one, start, (jnp.arange(len(group)), stacked))
        return *total, non_trainable, jax.tree.map(lambda leaf: jnp.mean(leaf.astype(jnp.float32), axis=0), summaries)

    def _gradients(
        self, params: Any, non_trainable: Any, batch: Any, key: object, *, mean: bool = False
    ) -> tuple[Any, Any, Any, Any]:
        """Return (sums of facts, gradient of the loss sum or of its mean, non-trainable variables, summaries)."""

        def loss(weights: Any) -> tuple[Any, Any]:
            variables = Variables(weights, non_trainable).as_mapping()
            loss_sum, count, out = self.task.train_loss(variables, batch, key)
            count = jax.lax.stop_gradient(jnp.asarray(count, jnp.float32))
            return loss_sum / _divisor(count) if mean else loss_sum, (loss_sum, count, out)

        grads, (loss_sum, count, out) = jax.grad(loss, has_aux=True)(params)
        sums = {"loss_sum": loss_sum.astype(jnp.float32), "count": count, "num_tokens": tokens_in(batch)}
        return sums | sums_of(out.metrics), grads, out.non_trainable, dict(out.summaries)

    def take_again(
        self, params: Any, non_trainable: Any, batch: Any, key: object, *, step: Any, mean: bool
    ) -> tuple[Any, Any, Any]:
        """Run forward and backward on one micro-batch of update `step` + 1, without changing any weights.

        Returns:
            (loss sum, gradient, non-trainable variables).
        """
        with self.around.set(), tracing_step(step):
            sums, grads, non_trainable, _ = self._gradients(params, non_trainable, batch, key, mean=mean)
            return sums["loss_sum"], grads, non_trainable

    def _packed(self, facts: Mapping[str, Any]) -> Any:
        # One vector instead of twenty scalars: each output of a program costs time, and each transfer costs more.
        # Sorted, so that the order is the same for every shape of batch.
        names = sorted(facts)
        if self.places and list(self.places) != names:
            raise TypeError(
                f"the update gave the facts {list(self.places)} for one shape of batch, and {names} for another: let "
                "task and learner give the same names always."
            )
        self.places.update({name: index for index, name in enumerate(names)})
        return jnp.stack([jnp.asarray(facts[name], jnp.float32).reshape(()) for name in names])

    def score(self, state: SpmdState, batch: Any) -> dict[str, Any]:
        """Return sums of metrics, outputs per example, and layers' summaries, each with weight 1."""
        self.retraces.note("score", batch)
        with self.around.set():
            metrics, per_example, summaries = self.task.eval_metrics(self._scored(state), batch)
            noted = {f"{NOTED}{name}": (value, 1.0) for name, value in dict(summaries or {}).items()}
            found: dict[str, Any] = self._by_rows({**sums_of({**metrics, **noted}), **dict(per_example)}, batch)
            return found

    def predict(self, state: SpmdState, batch: Any) -> Any:
        """Return the task's predictions."""
        self.retraces.note("predict", batch)
        with self.around.set():
            return self._by_rows(self.task.predict(self._scored(state), batch), batch)

    def decode(self, state: SpmdState, batch: Any, index: Any) -> Any:
        """Return the task's decoded output; `index` of the batch gives each batch its own random numbers."""
        self.retraces.note("decode", batch)
        with self.around.set():
            key = jax.random.fold_in(jax.random.fold_in(key_of(self.seed), state["step"]), index)
            return self._by_rows(self.task.decode(self._scored(state), batch, key), batch)

    def _by_rows(self, found: object, batch: Any) -> Any:
        """Shard outputs with a row per example like the batch and replicate others: each process can read its own."""
        rows = next(leaf.shape[0] for leaf in jax.tree.leaves(batch) if leaf.ndim)
        by_row = spec_of((rows,), ("batch",), self.around.rules, self.around.mesh)

        def laid_out(leaf: object) -> Any:
            leaf = jnp.asarray(leaf)
            has_rows = leaf.ndim and leaf.shape[0] == rows
            return jax.lax.with_sharding_constraint(leaf, by_row if has_rows else PartitionSpec())

        return jax.tree.map(laid_out, found)

    def _scored(self, state: SpmdState) -> dict[str, Any]:
        kept = None
        if self.averaged and state["opt_state"] is not None:
            kept = self.task.learner.averaged(state["opt_state"])
        return Variables(state["params"] if kept is None else kept, state["non_trainable"]).as_mapping()


def jitted(compiled: Compiled, placed: SpmdState, everywhere: Any) -> tuple[Callable[..., Any], ...]:
    """Return the jitted (update, score, predict, decode).

    The sharding of the new state is fixed: otherwise XLA may change that of some parts, which costs a recompilation.
    """
    update = jax.jit(compiled.update, donate_argnums=0, out_shardings=(placed, everywhere, everywhere))
    return update, jax.jit(compiled.score), jax.jit(compiled.predict), jax.jit(compiled.decode)


def sums_of(metrics: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return `sum of <name>` and `weight of <name>` for each metric, float32, both to be summed over batches."""
    flat: dict[str, Any] = {}
    for name, (total, weight) in metrics.items():
        flat[f"{SUM}{name}"] = jnp.asarray(total, jnp.float32)
        flat[f"{WEIGHT}{name}"] = jnp.asarray(weight, jnp.float32)
    return flat


def tokens_in(batch: Any) -> Any:
    """Return the number of non-padding tokens in a batch, float32: for speeds, not for losses."""
    if "paddings" in batch:
        return jnp.sum(1.0 - batch["paddings"].astype(jnp.float32))
    if "ntokens" in batch:
        return jnp.asarray(batch["ntokens"], jnp.float32)
    for name in ("segment_ids", "attention_mask"):
        if name in batch:
            return jnp.sum(batch[name] > 0, dtype=jnp.float32)
    if "ids" in batch:
        return jnp.asarray(batch["ids"].size, jnp.float32)
    inner = [tokens_in(part) for part in batch.values() if isinstance(part, Mapping)]  # such as source and target
    return sum(inner, jnp.zeros((), jnp.float32))


def sizes_of(grads: Any) -> dict[str, Any]:
    """Return [mean and largest absolute value, fraction of exact zeros] of each gradient, by path."""
    found = {}
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        size = jnp.abs(grad).astype(jnp.float32)
        found[path_name(path)] = jnp.stack([size.mean(), size.max(), (size == 0).mean(dtype=jnp.float32)])
    return found


def _divisor(count: Any) -> Any:
    """Return the divisor of a loss sum: its count, or 1 if the count is 0."""
    return jnp.where(count > 0, count, 1.0)


def widened(grads: Any) -> Any:
    """Return gradients in at least float32, so that many small ones add up accurately."""
    return jax.tree.map(lambda grad: grad.astype(jnp.promote_types(grad.dtype, jnp.float32)), grads)


def widened_shapes(grads: Any) -> Any:
    """Return the shapes of `widened`."""
    return jax.eval_shape(widened, grads)


def _refuse_drift(before: SpmdState, after: SpmdState) -> None:
    """Raise TypeError, while tracing, for an update that changes structure, shapes or types: it would be recompiled."""
    if str(jax.tree.structure(before)) != str(jax.tree.structure(after)):
        raise TypeError(
            f"the update changed the structure of the state from {jax.tree.structure(before)} to "
            f"{jax.tree.structure(after)}: keep it as it was."
        )
    for (path, was), has in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (was.shape, was.dtype) != (has.shape, has.dtype):
            raise TypeError(
                f"{path_name(path)}: the update turned {was.dtype}{list(was.shape)} into {has.dtype}{list(has.shape)}. "
                "Cast it back in the learner (or the layer that updates it): a state keeps its types."
            )
