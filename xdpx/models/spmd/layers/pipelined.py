"""A pipeline of equal stages, each on its own devices, which process different micro-batches at the same time.

S stages, R rounds, M micro-batches of m rows. The weights of all stages are stacked: leading dims (S,), or (R, S) if
micro-batches pass the stages several times; the layers of a model are in the order round, stage, layer of the
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.base_layer import (
    AUX_LOSS,
    DECODER_CACHE,
    NON_TRAINABLE,
    PARAMS,
    RANDOM,
    SUMMARIES,
    BaseLayer,
    as_template,
    opened,
)
from xdpx.models.spmd.decoding.cache import num_slots
from xdpx.models.spmd.layers.remat import keeps_everything, policy_named
from xdpx.models.spmd.layers.schedule import PipelineSchedule, Stages, Work, run
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain, resolve, without_mesh_axes

STAGE = "stage"
_SUB = "sub"


class Pipelined(BaseLayer):
    """Stages in parallel, by vmap over a stage axis and a buffer that shifts from stage to stage.

    Equal to the stages in sequence, including gradients. Arguments with a leading batch dim (masks, positions,
    segments) are split into micro-batches like the activations; others are the same for all.
    """

    class HParams(BaseLayer.HParams):
        """The stages and the micro-batches.

        Attributes:
            body: of one stage; its output has the shape of its input.
            num_stages: S; the size of the stage axis, if the mesh has one.
            num_microbatches: M; or set microbatch_size.
            microbatch_size: rows of the whole batch, over all devices, per micro-batch.
            circular_repeat: R. With R > 1 the bubble is R times shorter, and every stage has R blocks.
            checkpoint_policy: which activations of an iteration are stored for the backward pass (layers/remat.py).
        """

        body: BaseHParams | None = None
        num_stages: int = 1
        num_microbatches: int | None = None
        microbatch_size: int | None = None
        circular_repeat: int = 1
        checkpoint_policy: str = "nothing"

    def setup(self) -> None:
        """Check the sizes.

        Raises:
            ConfigError: there is no body, or not exactly one of num_microbatches and microbatch_size.
        """
        if self.body is None:
            raise refusal("Pipelined.body", "is None.", "Give the template of one stage.")
        if (self.num_microbatches is None) == (self.microbatch_size is None):
            problem = f"num_microbatches is {self.num_microbatches} and microbatch_size is {self.microbatch_size}."
            raise refusal("Pipelined", problem, "Give one of the two.")
        if self.num_stages < 1 or self.circular_repeat < 1:
            problem = f"num_stages is {self.num_stages} and circular_repeat is {self.circular_repeat}."
            raise refusal("Pipelined", problem, "Use 1 or more.")

    def __call__(self, x: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
        """Pass x (B, T, D) through all stages.

        Raises:
            ConfigError: the batch is not divisible into micro-batches, or a stage has running statistics.
        """
        body = self._unattached()
        if not self.has_variable(PARAMS, _SUB):
            self._initialise(body, x, args, kwargs)
            return x
        weights = jax.tree.map(opened, self.get_variable(PARAMS, _SUB), is_leaf=_is_box)
        if num_slots():
            return self._in_a_row(body, weights, x, args, kwargs)
        return self._side_by_side(body, weights, x, args, kwargs)

    def schedule(self, rows: int) -> PipelineSchedule:
        """Return the schedule for a batch of `rows` rows.

        Raises:
            ConfigError: the rows are not divisible into the requested micro-batches.
        """
        count = self.num_microbatches or -(-rows // (self.microbatch_size or 1))
        if rows % count or (self.microbatch_size is not None and rows % self.microbatch_size):
            wanted = f"{count} micro-batches" if self.num_microbatches else f"micro-batches of {self.microbatch_size}"
            problem = f"a batch of {rows} rows cannot be divided into {wanted}."
            raise refusal("Pipelined", problem, "Use a batch size that is a multiple, or other micro-batches.")
        return PipelineSchedule(self.num_stages, count, self.circular_repeat)

    def _unattached(self) -> Any:
        """Return the body as an unbound module, which gets its weights as arguments."""
        child = as_template(self.body)
        for field in self._inherited:
            if field in child._field_table and field not in child.given():
                setattr(child, field, getattr(self, field))
        values = {name: value for name, value in child.fields_and_values() if name != "name"}
        owner: Any = child._owner
        return owner(**values, parent=None)

    def _leading(self) -> tuple[int, ...]:
        return (self.num_stages,) if self.circular_repeat == 1 else (self.circular_repeat, self.num_stages)

    def _initialise(self, body: BaseLayer, x: jax.Array, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Initialise the weights of all stages, each with its own key."""

        def one(key: jax.Array) -> Any:
            row = jax.tree.map(lambda each: each[:1] if _has_rows(each, len(x)) else each, (x, args, kwargs))
            return body.init({PARAMS: key, RANDOM: key}, row[0], *row[1], **row[2])

        leading = self._leading()
        keys = jax.random.split(self.make_rng(PARAMS), leading)
        draw: Callable[[jax.Array], Any] = one
        for _ in leading:
            draw = jax.vmap(draw)
        drawn = draw(keys)
        if drawn.get(NON_TRAINABLE):
            raise refusal(
                "Pipelined.body",
                f"{type(body).__name__} keeps running statistics, which micro-batches in different stages would "
                "change at the same time.",
                "Use a body without them, or a repeated stack.",
            )
        axes = (STAGE,) if len(leading) == 1 else ("layers", STAGE)
        self.put_variable(PARAMS, _SUB, jax.tree.map(lambda box: _named(box, axes), drawn[PARAMS], is_leaf=_is_box))

    def _side_by_side(
        self,
        body: BaseLayer,
        weights: Mapping[str, Any],
        x: jax.Array,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> jax.Array:
        schedule = self.schedule(len(x))
        micro = _Microbatches(schedule, len(x))
        alike, varying = micro.told_apart((args, kwargs))
        key = self.make_rng(RANDOM) if self.has_rng(RANDOM) else None

        def stages(x: jax.Array, work: Work) -> tuple[jax.Array, Any]:
            keys = None if key is None else jax.random.split(jax.random.fold_in(key, work.iteration), len(x))
            beside = [_beside(each[work.microbatch]) for each in varying]
            y, sown = self._stages(body)(self._of_round(weights, work.round), x, beside, alike, keys)
            return y, sown

        def recorded(x: jax.Array, work: Work) -> tuple[jax.Array, Any]:
            y, sown = self._kept(stages)(x, work)
            return y, (sown, work)

        out, (sown, work) = run(recorded, micro.split(x), schedule, _at_stages)
        self._record(sown, work, schedule)
        return constrain(micro.joined(out), ACTIVATION_AXES[: x.ndim])

    def _kept(self, stages: Stages) -> Any:
        """Return the stages with recomputation in the backward pass, as the policy says."""
        if keeps_everything(self.checkpoint_policy):
            return stages
        return jax.checkpoint(stages, policy=policy_named(self.checkpoint_policy, vmapped=True), prevent_cse=False)

    def _stages(self, body: BaseLayer) -> Any:
        """Return the function that runs all stages in parallel."""
        axis = _stage_axis(self.num_stages)

        def stage(
            weights: Mapping[str, Any],
            x: jax.Array,
            beside: list[jax.Array],
            alike: Callable[[list[jax.Array]], Any],
            key: jax.Array | None,
        ) -> Any:
            args, kwargs = alike(beside)
            rngs = {} if key is None else {RANDOM: key}
            with without_mesh_axes(*axis):
                return body.apply({PARAMS: weights}, x, *args, rngs=rngs, mutable=[SUMMARIES, AUX_LOSS], **kwargs)

        def side_by_side(
            weights: Mapping[str, Any],
            x: jax.Array,
            beside: list[jax.Array],
            alike: Callable[[list[jax.Array]], Any],
            keys: jax.Array | None,
        ) -> Any:
            def one(weights: Mapping[str, Any], x: jax.Array, beside: list[jax.Array], key: jax.Array | None) -> Any:
                return stage(weights, x, beside, alike, key)

            return jax.vmap(one, spmd_axis_name=axis[0] if axis else None)(weights, x, beside, keys)

        return side_by_side

    def _of_round(self, weights: Mapping[str, Any], rounds: jax.Array) -> Any:
        """Return the weights (S, ...) of each stage in its round."""
        if self.circular_repeat == 1:
            return weights
        return jax.tree.map(lambda w: jax.vmap(lambda each, number: each[number], in_axes=(1, 0))(w, rounds), weights)

    def _record(self, sown: Mapping[str, Any], work: Work, schedule: PipelineSchedule) -> None:
        """Store the recorded values of the stages: means over micro-batches without bubbles, per round and stage."""
        of_round = work.round[..., None] == jnp.arange(schedule.rounds)
        counts = (work.counts[..., None] & of_round).astype(jnp.float32)

        def mean(leaf: jax.Array) -> jax.Array:
            mask = work.counts.reshape(*work.counts.shape, *[1] * (leaf.ndim - 2))
            total = jnp.einsum("is...,isr->rs...", jnp.where(mask, leaf, 0).astype(jnp.float32), counts)
            return (total / schedule.microbatches).reshape(*self._leading(), *leaf.shape[2:])

        for collection in (SUMMARIES, AUX_LOSS):
            if self.is_mutable_collection(collection) and sown.get(collection):
                self.put_variable(collection, _SUB, jax.tree.map(mean, sown[collection]))

    def _in_a_row(
        self,
        body: BaseLayer,
        weights: Mapping[str, Any],
        x: jax.Array,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> jax.Array:
        """Pass the whole batch through the blocks in sequence, for decoding, where a pipeline does not pay."""
        leading = self._leading()
        blocks = jax.tree.map(lambda w: w.reshape(-1, *w.shape[len(leading) :]), weights)
        cache: Any = self.get_variable(DECODER_CACHE, _SUB) if self.has_variable(DECODER_CACHE, _SUB) else {}

        def block(x: jax.Array, of_block: tuple[Mapping[str, Any], Mapping[str, Any]]) -> tuple[jax.Array, Any]:
            weights, cache = of_block
            y, changed = body.apply(
                {PARAMS: weights, DECODER_CACHE: cache}, x, *args, mutable=[DECODER_CACHE], **kwargs
            )
            return y, changed[DECODER_CACHE]

        y, cache = jax.lax.scan(block, x, (blocks, cache))
        self.put_variable(DECODER_CACHE, _SUB, cache)
        return y


class _Microbatches:
    """Splits a batch into micro-batches: row r of micro-batch i is row r * M + i of the batch.

    So rows need not move between devices: each has a run of rows of the batch, and of every micro-batch.
    """

    def __init__(self, schedule: PipelineSchedule, rows: int) -> None:
        self.schedule = schedule
        self.rows = rows

    def split(self, x: jax.Array) -> jax.Array:
        """Reshape (B, ...) to (slots, m, ...); slots beyond M repeat the first micro-batch."""
        count = self.schedule.microbatches
        micro = jnp.swapaxes(x.reshape(self.rows // count, count, *x.shape[1:]), 0, 1)
        extra = self.schedule.slots - count
        return jnp.concatenate([micro, jnp.repeat(micro[:1], extra, axis=0)]) if extra else micro

    def joined(self, micro: jax.Array) -> jax.Array:
        """Reverse `split`."""
        rows = jnp.swapaxes(micro[: self.schedule.microbatches], 0, 1)
        return rows.reshape(self.rows, *micro.shape[2:])

    def told_apart(
        self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    ) -> tuple[Callable[[list[Any]], Any], list[jax.Array]]:
        """Separate the arguments that have one row per row of the batch.

        Returns:
            (a function from these arrays, for some rows, to all arguments; these arrays as micro-batches).
        """
        leaves: list[Any]
        form: Any
        leaves, form = jax.tree.flatten(arguments)
        varies = [_has_rows(leaf, self.rows) for leaf in leaves]

        def together(varying: list[Any]) -> Any:
            given = iter(varying)
            return form.unflatten([next(given) if v else leaf for v, leaf in zip(varies, leaves, strict=True)])

        return together, [self.split(leaf) for v, leaf in zip(varies, leaves, strict=True) if v]


def _has_rows(leaf: object, rows: int) -> bool:
    shape: tuple[int, ...] = getattr(leaf, "shape", ())
    return len(shape) > 0 and shape[0] == rows


def _is_box(node: object) -> bool:
    return isinstance(node, nn.meta.AxisMetadata)


def _named(box: Any, axes: tuple[str, ...]) -> Any:
    """Add names for the leading axes of a weight to those of its other axes."""
    if isinstance(box, nn.LogicallyPartitioned):
        return box.replace(names=(*axes, *box.names))
    rest = (None,) * (box.ndim - len(axes))
    return nn.LogicallyPartitioned(box, (*axes, *rest))


def _stage_axis(stages: int) -> tuple[str, ...]:
    """Return the mesh axis of the stages, () if there is none."""
    mesh, rules = jax.sharding.get_abstract_mesh(), nn.get_logical_axis_rules()
    if mesh.empty or not rules:
        return ()
    spec = resolve((STAGE,), (stages,), tuple(rules), dict(mesh.shape))
    axis: Any = spec[0] if len(spec) else None
    return () if axis is None else (axis,) if isinstance(axis, str) else tuple(axis)


def _at_stages(x: jax.Array) -> jax.Array:
    """Shard activations (S, m, T, D), or (S, slots, m, T, D), over the stages."""
    return constrain(x, (STAGE, *[None] * (x.ndim - 4), *ACTIVATION_AXES))


def _beside(x: jax.Array) -> jax.Array:
    """Shard other arguments (S, m, ...) over the stages."""
    return constrain(x, (STAGE, ACTIVATION_AXES[0]))
