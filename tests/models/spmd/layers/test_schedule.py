from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.tiers import some
from xdpx.models.spmd.layers.schedule import PipelineSchedule, run

FEATURES, ROWS = 8, 4
SIZES = [(2, 4, 1), (4, 4, 1), (2, 3, 1), (4, 4, 2), (2, 6, 3)]
"""Stages, micro-batches and rounds."""


def layer(w: jax.Array, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ w)


def weights(schedule: PipelineSchedule) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (schedule.rounds, schedule.stages, FEATURES, FEATURES)) * 0.3


def inputs(schedule: PipelineSchedule) -> jax.Array:
    return jax.random.normal(jax.random.key(2), (schedule.slots, ROWS, FEATURES))


def in_a_row(w: jax.Array, x: jax.Array) -> jax.Array:
    for one in w.reshape(-1, FEATURES, FEATURES):
        x = layer(one, x)
    return x


def pipelined(w: jax.Array, x: jax.Array, schedule: PipelineSchedule, constrain: Any = lambda x: x) -> Any:
    def stages(x: jax.Array, work: Any) -> tuple[jax.Array, Any]:
        of_round = jax.vmap(lambda each, number: each[number], in_axes=(1, 0))(w, work.round)
        return jax.vmap(layer)(of_round, x), work.counts

    return run(stages, x, schedule, constrain)


@pytest.mark.parametrize(("stages", "microbatches", "rounds"), some(SIZES, [(2, 3, 1), (4, 4, 2), (2, 6, 3)]))
def test_a_pipeline_computes_what_the_layers_in_a_row_compute_and_its_gradients(
    stages: int, microbatches: int, rounds: int
) -> None:
    schedule = PipelineSchedule(stages, microbatches, rounds)
    w, x = weights(schedule), inputs(schedule)

    def loss(run_it: Any) -> Any:
        return jax.value_and_grad(lambda w, x: jnp.sum(jnp.sin(run_it(w, x)[:microbatches])), argnums=(0, 1))

    ours, our_gradients = jax.jit(loss(lambda w, x: pipelined(w, x, schedule)[0]))(w, x)
    plain, plain_gradients = jax.jit(loss(in_a_row))(w, x)
    np.testing.assert_allclose(ours, plain, rtol=1e-5)
    for one, other in zip(our_gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_every_stage_counts_every_real_microbatch_once_per_round() -> None:
    schedule = PipelineSchedule(2, 3, 2)
    counted = pipelined(weights(schedule), inputs(schedule), schedule)[1]
    np.testing.assert_array_equal(counted.sum(0), [3 * 2, 3 * 2])


def test_the_bubble_is_the_share_of_iterations_that_is_thrown_away() -> None:
    assert PipelineSchedule(4, 4).bubble == pytest.approx(3 / 7)
    assert PipelineSchedule(4, 8, 2).bubble == pytest.approx(3 / 19)


@pytest.mark.parametrize("rounds", some([1, 2], [2]))
def test_on_a_mesh_stages_only_send_to_their_neighbours(rounds: int) -> None:
    schedule = PipelineSchedule(4, 8, rounds)
    mesh = jax.make_mesh((4, 2), ("stage", "data"), axis_types=(AxisType.Auto,) * 2)

    def put(x: jax.Array) -> jax.Array:
        rows = ["data" if size == ROWS else None for size in x.shape[1:]]
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("stage", *rows)))

    w = jax.device_put(weights(schedule), NamedSharding(mesh, PartitionSpec(None, "stage")))
    x = jax.device_put(inputs(schedule), NamedSharding(mesh, PartitionSpec("stage", "data")))
    compiled = jax.jit(lambda w, x: pipelined(w, x, schedule, put)[0]).lower(w, x).compile()
    found = set(
        re.findall(r"\b(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)", compiled.as_text())
    )
    assert found == {"collective-permute"}
    np.testing.assert_allclose(compiled(w, x), in_a_row(weights(schedule), inputs(schedule)), atol=1e-5)
