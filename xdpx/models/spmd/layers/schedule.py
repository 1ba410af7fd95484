"""The schedule of a pipeline: which stage processes which micro-batch when, and how activations move.

S stages, M micro-batches, R rounds (how often each micro-batch passes all stages), C = M / S. All moving arrays have a
leading stage axis, so that on a mesh with a stage axis every movement is a send to a neighbour.

Micro-batches are stored in a conveyor (S, C, ...): at iteration i stage 0 takes slot (0, i mod C); that column then
shifts by one stage, and the result of the last stage is put at its end. So inputs are spread over the stages, outputs
replace them in place, and nothing is gathered.

Source: Huang et al., "GPipe", NeurIPS 2019, section 2; Xu et al., "GSPMD", 2021, section 3.3 (vmapped stages and a
shifting buffer); Narayanan et al., "Efficient Large-Scale Language Model Training", SC 2021, section 2.2 (rounds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class PipelineSchedule:
    """Sizes of a pipeline.

    Attributes:
        stages: S.
        microbatches: M; the conveyor has the next multiple of S.
        rounds: R.
    """

    stages: int
    microbatches: int
    rounds: int = 1

    @property
    def columns(self) -> int:
        """C, slots of the conveyor per stage."""
        return -(-self.microbatches // self.stages)

    @property
    def slots(self) -> int:
        """Slots of the conveyor: M, or the next multiple of S."""
        return self.columns * self.stages

    @property
    def iterations(self) -> int:
        """Number of iterations; for each stage S - 1 of them are bubbles."""
        return self.slots * self.rounds + self.stages - 1

    @property
    def bubble(self) -> float:
        """Share of the computation that is discarded, from 0 to 1."""
        return 1.0 - self.microbatches * self.rounds / self.iterations

    def work_at(self, iteration: jax.Array) -> Work:
        """Return the work of each stage in one iteration."""
        count = iteration - jnp.arange(self.stages)
        microbatch = count % self.slots
        busy = (count >= 0) & (count < self.slots * self.rounds)
        rounds = jnp.clip(count // self.slots, 0, self.rounds - 1)
        return Work(iteration, microbatch, rounds, busy & (microbatch < self.microbatches))


class Work(NamedTuple):
    """The work of the stages in one iteration: `microbatch`, `round` and `counts` have shape (S,).

    If `counts` is false the stage is in a bubble: its result is discarded and must not be recorded.
    """

    iteration: jax.Array
    microbatch: jax.Array
    round: jax.Array
    counts: jax.Array


class _Moving(NamedTuple):
    """Moving activations: `state` (S, ...), `conveyor` (S, C, ...), `waiting` (S, slots, ...) or None."""

    state: jax.Array
    conveyor: jax.Array
    waiting: jax.Array | None


Stages = Callable[[jax.Array, Work], tuple[jax.Array, Any]]
"""`stages(x (S, ...), work) -> (y (S, ...), recorded values)`: all stages in parallel."""

Constrain = Callable[[jax.Array], jax.Array]
"""Adds a sharding constraint to an array with a leading stage axis."""


def run(
    stages: Stages, inputs: jax.Array, schedule: PipelineSchedule, constrain: Constrain = lambda x: x
) -> tuple[Any, Any]:
    """Pass all micro-batches through all stages, R times.

    Args:
        stages: the computation of one iteration.
        inputs: shape (slots, ...), micro-batches first; extra slots may contain anything finite.
        schedule: the sizes.
        constrain: shards the leading axis of an array over the stages of the mesh.

    Returns:
        (outputs of the shape of `inputs`, recorded values of each iteration, stacked on axis 0).
    """
    shape = (schedule.stages, schedule.columns, *inputs.shape[1:])
    conveyor = constrain(inputs.reshape(shape))
    filler = conveyor[:, 0]
    waits = schedule.rounds > 1 and schedule.slots > schedule.stages
    start = _Moving(
        state=filler,
        conveyor=conveyor,
        waiting=constrain(jnp.zeros((schedule.stages, *inputs.shape), inputs.dtype)) if waits else None,
    )

    def iterate(moving: _Moving, iteration: jax.Array) -> tuple[_Moving, Any]:
        stream = jax.lax.dynamic_index_in_dim(moving.conveyor, iteration % schedule.columns, 1, keepdims=False)
        entering = _entering(moving, stream, filler, iteration, schedule)
        x = constrain(_at_row(0, entering, moving.state))
        y, recorded = stages(x, schedule.work_at(iteration))
        return _moved(moving, stream, constrain(y), iteration, schedule, constrain), recorded

    moved, recorded = jax.lax.scan(iterate, start, jnp.arange(schedule.iterations))
    outputs = jnp.roll(moved.conveyor, 1 - schedule.stages, axis=1)
    return outputs.reshape(inputs.shape), recorded


def _entering(
    moving: _Moving, stream: jax.Array, filler: jax.Array, iteration: jax.Array, schedule: PipelineSchedule
) -> jax.Array:
    """Return the input of stage 0, in row 0: a new one, one from the last stage, or in a bubble any input.

    A bubble computes on real activations, whose gradient is finite, so that it is zero when multiplied by zero; with
    zeros as input, a division by a standard deviation would give NaN.
    """
    entering = stream
    if schedule.rounds > 1:
        around = moving.state
        if moving.waiting is not None:
            around = jax.lax.dynamic_index_in_dim(moving.waiting, iteration % schedule.slots, 1, keepdims=False)
        entering = jnp.where(iteration < schedule.slots, stream, around)
    return jnp.where(iteration < schedule.slots * schedule.rounds, entering, filler)


def _moved(
    moving: _Moving,
    stream: jax.Array,
    y: jax.Array,
    iteration: jax.Array,
    schedule: PipelineSchedule,
    constrain: Constrain,
) -> _Moving:
    """Pass every result to the next stage, and that of the last stage to the conveyor."""
    shifted = constrain(jnp.roll(y, 1, axis=0))
    column = _at_row(schedule.stages - 1, y, jnp.roll(stream, -1, axis=0))
    conveyor = jax.lax.dynamic_update_index_in_dim(moving.conveyor, column, iteration % schedule.columns, 1)
    waiting = moving.waiting
    if waiting is not None:
        slot = (iteration - schedule.stages + 1) % schedule.slots
        waiting = constrain(jax.lax.dynamic_update_index_in_dim(waiting, shifted, slot, 1))
    return _Moving(shifted, constrain(conveyor), waiting)


def _at_row(row: int, there: jax.Array, elsewhere: jax.Array) -> jax.Array:
    here = jnp.arange(there.shape[0]) == row
    return jnp.where(here.reshape(-1, *[1] * (there.ndim - 1)), there, elsewhere)
