from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from jax.sharding import AxisType

from tests.tiers import some
from xdpx.models.spmd.base_layer import AUX_LOSS, SUMMARIES, total_aux_loss
from xdpx.models.spmd.layers.activations import SiLU
from xdpx.models.spmd.layers.moe import MoeFeedForward, TransformerFeedForwardMoe
from xdpx.models.spmd.sharding import TRANSFORMER_RULES, placed

GROUPED: dict[str, Any] = {"num_groups": 2}
GATED = {"use_gated_activation": True, "activation_tpl": SiLU.HParams()}
X = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6, 8)), jnp.float32)


def experts(**fields: Any) -> Any:
    sizes = {"input_dims": 8, "hidden_dims": 16, "num_experts": 4, "capacity_factor": 99.0}
    return MoeFeedForward(**{**sizes, **fields})


def weights_of(layer: Any) -> Any:
    return meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))["params"]


@pytest.mark.parametrize("fields", some([{}, GROUPED, GATED], [GROUPED, GATED]))
def test_with_room_for_all_it_equals_the_experts_computed_one_by_one_with_gradients(fields: dict[str, Any]) -> None:
    layer = experts(**fields)
    params = weights_of(layer)

    def loss(method: Any) -> Any:
        return jax.jit(
            jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(layer.apply({"params": p}, x, method=method))), (0, 1))
        )

    ours, dense = loss(None)(params, X), loss("dense")(params, X)
    np.testing.assert_allclose(ours[0], dense[0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours[1], dense[1])


def test_a_token_without_room_and_padding_come_out_as_zeros() -> None:
    layer = experts(capacity_factor=0.0, expert_capacity=1)
    paddings = jnp.zeros(X.shape[:2]).at[:, 0].set(1)
    params = weights_of(layer)
    y, sown = layer.apply({"params": params}, X, paddings, mutable=[AUX_LOSS, SUMMARIES])
    assert np.all(np.asarray(y[:, 0]) == 0)
    empty = np.all(np.asarray(y) == 0, axis=-1)
    assert 4 < empty.sum() < empty.size
    assert float(sown[SUMMARIES]["dropped_tokens"]) > 0


def test_the_balance_loss_is_added_and_pushes_the_router() -> None:
    layer = experts(aux_loss_weight=0.5, router_z_loss_weight=0.1)

    def loss(params: Any) -> jax.Array:
        return total_aux_loss(layer.apply({"params": params}, X, mutable=[AUX_LOSS])[1][AUX_LOSS])[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(weights_of(layer))
    assert float(value) > 0.5
    assert float(jnp.abs(gradients["gate"]).max()) > 0
    assert float(jnp.abs(gradients["wo_0"]).max()) == 0


def test_experts_split_over_a_mesh_give_the_same() -> None:
    mesh = jax.make_mesh((1, 2, 4), ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)
    layer = experts()
    boxed = jax.jit(layer.init)(jax.random.key(0), X)["params"]
    assert boxed["wi_0"].names == ("expert", "embed", "mlp")
    params = meta.unbox(boxed)

    def apply(params: Any, x: jax.Array) -> Any:
        with placed(mesh, TRANSFORMER_RULES):
            return layer.apply({"params": params}, x)

    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("mdl"))
    there = {n: jax.device_put(w, place) if n != "gate" else w for n, w in params.items()}
    with jax.set_mesh(mesh):
        y = jax.jit(apply)(there, X)
    np.testing.assert_allclose(y, layer.apply({"params": params}, X), atol=1e-5)


def test_impossible_sizes_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="experts_per_token is 5 and num_experts is 4"):
        experts(experts_per_token=5).init(jax.random.key(0), X)
    with pytest.raises(ValueError, match="4 x 6 tokens cannot be divided into 5 groups"):
        experts(num_groups=5).init(jax.random.key(0), X)


def test_a_block_takes_experts_for_its_feed_forward_part() -> None:
    moe = MoeFeedForward.HParams(num_experts=4, capacity_factor=99.0)
    layer = TransformerFeedForwardMoe(input_dims=8, hidden_dims=16, moe_tpl=moe)
    params = weights_of(layer)
    y = layer.apply({"params": params}, X, jnp.ones(X.shape[:2]))
    np.testing.assert_array_equal(y, X)
    assert params["moe"]["wi_0"].shape == (4, 8, 16)
