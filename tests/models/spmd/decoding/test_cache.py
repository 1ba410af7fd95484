from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from xdpx.models.spmd.decoding.cache import COLLECTION, caching, chosen_rows, extend, num_slots, repeated_rows
from xdpx.models.spmd.sharding import TRANSFORMER_RULES, placed


class Holder(nn.Module):
    """A layer that keeps what it is given."""

    def __call__(self, x: jax.Array, positions: jax.Array) -> Any:
        return extend(self, x, -x, positions)


def written(x: jax.Array, positions: jax.Array, cache: Any = None, slots: int = 4) -> Any:
    with caching(slots):
        return Holder().apply({COLLECTION: cache or {}}, x, positions, mutable=[COLLECTION])


def rows(*values: float) -> jax.Array:
    return jnp.broadcast_to(jnp.array(values)[:, None, None, None], (len(values), 1, 1, 1))


def test_every_token_lies_in_the_slot_of_its_position_and_sees_those_up_to_its_own() -> None:
    x = jnp.arange(6.0).reshape(2, 3, 1, 1)
    found, changed = written(x, jnp.tile(jnp.arange(3), (2, 1)))
    np.testing.assert_array_equal(found.key[1, :, 0, 0], [3, 4, 5, 0])
    np.testing.assert_array_equal(found.visible[0, 0], np.tri(3, 4, dtype=bool))
    found, _ = written(rows(7.0, 8.0), jnp.array([[1], [3]]), changed[COLLECTION])
    np.testing.assert_array_equal(found.value[:, :, 0, 0], [[0, -7, -2, 0], [-3, -4, -5, -8]])
    np.testing.assert_array_equal(found.visible[:, 0, 0], [[1, 1, 0, 0], [1, 1, 1, 1]])


def test_a_position_beyond_the_last_slot_is_not_written() -> None:
    _, changed = written(rows(1.0), jnp.array([[0]]))
    found, _ = written(rows(9.0), jnp.array([[4]]), changed[COLLECTION])
    np.testing.assert_array_equal(found.key[0, :, 0, 0], [1, 0, 0, 0])


def test_outside_of_caching_nothing_is_kept() -> None:
    assert num_slots() == 0
    assert Holder().apply({}, rows(1.0), jnp.array([[0]])) is None


def test_rows_are_repeated_and_chosen_behind_the_axes_of_stacked_layers() -> None:
    stacked = {"a": jnp.arange(12.0).reshape(2, 3, 2, 1, 1)}
    assert repeated_rows(stacked, 2)["a"].shape == (2, 6, 2, 1, 1)
    np.testing.assert_array_equal(chosen_rows(stacked, jnp.array([2, 0]))["a"], stacked["a"][:, [2, 0]])


def test_rows_on_different_devices_stay_there() -> None:
    mesh = jax.make_mesh((1, 4, 2), ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)
    x, at = jnp.ones((4, 1, 2, 8)), jnp.arange(4)[:, None]

    def step(cache: Any, x: jax.Array, at: jax.Array) -> Any:
        with placed(mesh, TRANSFORMER_RULES):
            return written(x, at, cache)[1][COLLECTION]

    cache = written(x, at)[1][COLLECTION]
    heads = NamedSharding(mesh, PartitionSpec("data", None, "mdl"))
    there = jax.device_put((cache, x), heads)
    compiled = jax.jit(step).lower(*there, jax.device_put(at, NamedSharding(mesh, PartitionSpec("data")))).compile()
    assert not re.search(r"all-gather|all-reduce|all-to-all|collective-permute", compiled.as_text())
