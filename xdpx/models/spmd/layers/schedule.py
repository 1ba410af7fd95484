"""The schedule of a pipeline: which stage works on which micro-batch when, and how activations move between stages.

S stages, M micro-batches, R rounds (how often each micro-batch passes all stages), C = M / S. All arrays that move have
a leading stage axis, so that on a mesh with a stage axis every movement is a send to a neighbour.

Micro-batches lie in a conveyor (S, C, ...): at iteration i stage 0 takes slot (0, i mod C); that column then moves one
stage down, and what the last stage has finished fills its end. Inputs are thus spread over the stages, outputs
replace them in place, and nothing is gathered anywhere.

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
class Schedule:
    """Sizes of a pipeline.

    Attributes:
        stages: S.
        microbatches: how many there are; the conveyor holds the next multiple of S.
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
        """How often all stages work side by side; S - 1 of them are bubbles of every stage."""
        return self.slots * self.rounds + self.stages - 1

    @property
    def bubble(self) -> float:
        """Share of the work that is thrown away, from 0 to 1."""
        return 1.0 - self.microbatches * self.rounds / self.iterations

    def work_at(self, iteration: jax.Array) -> Work:
        """Tell what each stage works on in one iteration."""
        count = iteration - jnp.arange(self.stages)
        microbatch = count % self.slots
        busy = (count >= 0) & (count < self.slots * self.rounds)
        rounds = jnp.clip(count // self.slots, 0, self.rounds - 1)
        return Work(iteration, microbatch, rounds, busy & (microbatch < self.microbatches))


class Work(NamedTuple):
    """What the stages do in one iteration: `microbatch`, `round` and `counts` have shape (S,).

    Where `counts` is false the stage is in a bubble: its result is thrown away and nothing of it may be recorded.
    """

    iteration: jax.Array
    microbatch: jax.Array
    round: jax.Array
    counts: jax.Array


class _Moving(NamedTuple):
    """Activations on their way: `state` (S, ...), `conveyor` (S, C, ...), `waiting` (S, M, ...) or nothing."""

    state: jax.Array
    conveyor: jax.Array
    waiting: jax.Array | None


Stages = Callable[[jax.Array, Work], tuple[jax.Array, Any]]
"""`stages(x (S, ...), work) -> (y (S, ...), what is recorded)`: all stages side by side."""

Constrain = Callable[[jax.Array], jax.Array]
"""Return where an array with a leading stage axis lies."""


def run(stages: Stages, inputs: jax.Array, schedule: Schedule, constrain: Constrain = lambda x: x) -> tuple[Any, Any]:
    """Pass all micro-batches through all stages, R times.

    Args:
        stages: the work of one iteration.
        inputs: shape (slots, ...), micro-batches first; what fills up to `slots` can be anything finite.
        schedule: the sizes.
        constrain: puts the leading axis of an array onto the stages of the mesh.

    Returns:
        (outputs of the shape of `inputs`, what each iteration recorded, stacked on axis 0).
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
    moving: _Moving, stream: jax.Array, filler: jax.Array, iteration: jax.Array, schedule: Schedule
) -> jax.Array:
    """Return what stage 0 takes, in row 0: an input, what came around, or in a bubble an input once more.

    A bubble computes on real activations, whose gradient is finite: times zero it is zero, which that of a division
    by the deviation of zeros would not be.
    """
    entering = stream
    if schedule.rounds > 1:
        around = moving.state
        if moving.waiting is not None:
            around = jax.lax.dynamic_index_in_dim(moving.waiting, iteration % schedule.slots, 1, keepdims=False)
        entering = jnp.where(iteration < schedule.slots, stream, around)
    return jnp.where(iteration < schedule.slots * schedule.rounds, entering, filler)


def _moved(
    moving: _Moving, stream: jax.Array, y: jax.Array, iteration: jax.Array, schedule: Schedule, constrain: Constrain
) -> _Moving:
    """Hand every result to the next stage, and that of the last one to the conveyor."""
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
