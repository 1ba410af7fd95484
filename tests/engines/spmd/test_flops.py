"""Counted FLOPs against hand counts, and against what XLA counts for an unrolled program."""

import jax
import jax.numpy as jnp
import pytest

from xdpx.engines.spmd.flops import count
from xdpx.models.spmd.layers.moe import MoeFeedForward


def shape(*sizes: int, dtype: object = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def test_a_product_costs_two_flops_for_each_pair_of_numbers():
    assert count(jnp.dot, shape(3, 4), shape(4, 5)).flops == 2 * 3 * 4 * 5


def test_batched_products_count_each_of_the_batch():
    found = count(lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), shape(2, 7, 3, 4), shape(2, 5, 3, 4))
    assert found.flops == 2 * 2 * 3 * 7 * 5 * 4


def test_a_scanned_body_counts_as_often_as_it_runs():
    def layers(x, w):
        return jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), None), x, w)[0]

    assert count(layers, shape(8, 16), shape(5, 16, 16)).flops == 5 * 2 * 8 * 16 * 16


def test_what_is_computed_again_in_the_backward_pass_is_not_counted():
    def layer(x, w):
        return jnp.tanh(jnp.tanh(x @ w) @ w).sum()

    args = (shape(8, 16), shape(16, 16))
    assert count(jax.checkpoint(layer), *args).flops == count(layer, *args).flops == 2 * 2 * 8 * 16 * 16


def test_training_is_what_differentiating_counts():
    def loss(w, x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]) ** 2)

    weights = {"a": shape(16, 32), "b": shape(32, 16)}
    forward = count(loss, weights, shape(8, 16))
    backward = count(jax.grad(loss, argnums=(0, 1)), weights, shape(8, 16))
    assert backward.flops == forward.training == 3 * 2 * 2 * 8 * 16 * 32


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_looking_up_by_a_product_with_one_hot_rows_is_a_lookup(dtype):
    def look(ids, table, out):
        return jax.nn.one_hot(ids, 32, dtype=dtype) @ table.astype(dtype) @ out.astype(dtype)

    found = count(look, shape(8, dtype=jnp.int32), shape(32, 16), shape(16, 4))
    assert (found.flops, found.lookup) == (2 * 8 * 16 * 4, 2 * 8 * 32 * 16)


def test_moving_rows_to_experts_is_a_lookup():
    experts = MoeFeedForward(input_dims=8, hidden_dims=16, num_experts=4)
    variables = jax.eval_shape(experts.init, jax.random.key(0), shape(2, 6, 8))
    found = count(experts.apply, variables, shape(2, 6, 8))
    slots = 2 * 4 * 3  # two rows, four experts, 6 x 2 / 4 places each
    assert found.lookup > 2 * 2 * 6 * 4 * 3 * 8
    assert found.flops - 2 * (2 * slots * 8 * 16) - 2 * 12 * 8 * 4 < 12 * 4 * 3 * 2 * 4  # little else: places of tokens


def test_convolutions_and_branches_count():
    kernel, image = shape(3, 3, 4, 8), shape(1, 10, 10, 4)

    def convolve(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert count(convolve, image, kernel).flops == 2 * 100 * 8 * 9 * 4
    branch = count(lambda p, x: jax.lax.cond(p, lambda y: y @ y, lambda y: y, x), shape(dtype=bool), shape(4, 4))
    assert branch.flops == 2 * 4**3


def test_a_loop_of_unknown_length_counts_once_and_says_so():
    def until_large(x):
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c @ c, x)

    found = count(until_large, shape(4, 4))
    assert (found.flops, dict(found.unknown)) == (2 * 4**3, {"while": 1})


def test_a_split_body_counts_for_all_devices():
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4], axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.P("data")
    body = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(split, jax.P()), out_specs=split)
    assert count(body, shape(8, 16), shape(16, 16)).flops == 2 * 8 * 16 * 16


def test_an_unrolled_model_costs_what_xla_counts_within_the_elementwise_rest():
    def loss(ws, x):
        for w in ws:
            x = x + jax.nn.relu(x @ w["up"]) @ w["down"]
        return jnp.sum(x)

    layers = [{"up": shape(128, 512), "down": shape(512, 128)} for _ in range(3)]
    ours = count(loss, layers, shape(64, 128)).flops
    theirs = jax.jit(loss).lower(layers, shape(64, 128)).compile().cost_analysis()["flops"]
    assert ours == 3 * 2 * 2 * 64 * 128 * 512
    assert ours <= theirs <= 1.02 * ours
