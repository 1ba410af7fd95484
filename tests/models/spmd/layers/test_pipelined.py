from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta
from jax.sharding import AxisType

from tests.tiers import some
from xdpx.models.spmd.base_layer import AUX_LOSS, SUMMARIES, BaseLayer, Weight, total_aux_loss
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.sharding import PIPELINE_RULES, constrain, placed

ROWS, LENGTH, FEATURES = 8, 3, 4
REMATTED: dict[str, Any] = {"num_microbatches": None, "microbatch_size": 4, "checkpoint_policy": "everything"}
CIRCULAR = {"num_microbatches": 8, "circular_repeat": 2}


class Block(BaseLayer):
    """One layer that looks at a scale per row and at an offset for all, and tells the size of what it gives."""

    features: int = FEATURES

    def setup(self) -> None:
        self.create_variable("w", Weight((self.features, self.features), axes=("embed", "mlp")))

    def __call__(self, x: jax.Array, scale: jax.Array | None = None, offset: float = 0.0) -> jax.Array:
        x = x + jnp.tanh(x @ self.theta.w) * (1.0 if scale is None else scale[:, None, None]) + offset
        self.add_aux_loss("size", jnp.mean(x * x))
        self.add_summary("mean", x.mean())
        return constrain(x, ("activation_batch", "activation_length", "activation_embed"))


def pipeline(**fields: Any) -> Any:
    return Pipelined(body=Block.HParams(), num_stages=4, **{"num_microbatches": 4, **fields})


def x_and_scale() -> tuple[jax.Array, jax.Array]:
    one, two = jax.random.split(jax.random.key(3))
    return jax.random.normal(one, (ROWS, LENGTH, FEATURES)), jax.random.uniform(two, (ROWS,))


def weights_of(layer: Any) -> Any:
    x, scale = x_and_scale()
    return meta.unbox(layer.init(jax.random.key(0), x, scale))["params"]


def in_a_row(w: jax.Array, x: jax.Array, scale: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    sizes = []
    for one in w.reshape(-1, FEATURES, FEATURES):
        x = x + jnp.tanh(x @ one) * scale[:, None, None]
        sizes.append(jnp.mean(x * x))
    return x, sizes


@pytest.mark.parametrize(
    "fields", some([{}, {"checkpoint_policy": "dot_with_no_batch_dim"}, REMATTED, CIRCULAR], [REMATTED, CIRCULAR])
)
def test_a_pipelined_stack_equals_its_layers_in_a_row_with_gradients_and_auxiliary_losses(
    fields: dict[str, Any],
) -> None:
    layer, (x, scale) = pipeline(**fields), x_and_scale()
    params = weights_of(layer)

    def ours(params: Any, x: jax.Array) -> Any:
        y, sown = layer.apply({"params": params}, x, scale, mutable=[AUX_LOSS, SUMMARIES])
        return jnp.sum(jnp.sin(y)) + total_aux_loss(sown[AUX_LOSS])[0], sown

    def plain(params: Any, x: jax.Array) -> Any:
        y, sizes = in_a_row(params["sub"]["w"], x, scale)
        return jnp.sum(jnp.sin(y)) + sum(sizes), sizes

    (loss, sown), gradients = jax.jit(jax.value_and_grad(ours, argnums=(0, 1), has_aux=True))(params, x)
    (expected, sizes), plain_gradients = jax.jit(jax.value_and_grad(plain, argnums=(0, 1), has_aux=True))(params, x)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-5), gradients, plain_gradients)
    np.testing.assert_allclose(sown[AUX_LOSS]["sub"]["size"]["value"].reshape(-1), jnp.stack(sizes), rtol=1e-5)
    assert total_aux_loss(sown[AUX_LOSS])[1] == len(sizes)


def test_weights_are_stacked_by_stage_and_drawn_apart() -> None:
    boxed = pipeline(circular_repeat=2).init(jax.random.key(0), *x_and_scale())["params"]["sub"]["w"]
    assert boxed.names == ("layers", "stage", "embed", "mlp")
    assert boxed.value.shape == (2, 4, FEATURES, FEATURES)
    assert len(np.unique(np.asarray(boxed.value)[..., 0, 0])) == 8


def test_a_nan_that_only_a_bubble_could_make_reaches_no_gradient() -> None:
    class Normed(BaseLayer):
        def setup(self) -> None:
            self.create_variable("w", Weight((FEATURES,), axes=("norm",)))

        def __call__(self, x: jax.Array) -> jax.Array:
            return x * self.theta.w / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True))

    layer = Pipelined(body=Normed.HParams(), num_stages=2, num_microbatches=2, checkpoint_policy="everything")
    x = x_and_scale()[0]
    params = meta.unbox(layer.init(jax.random.key(0), x))["params"]
    gradients = jax.grad(lambda p: layer.apply({"params": p}, x).sum())(jax.tree.map(jnp.ones_like, params))
    assert np.isfinite(gradients["sub"]["w"]).all()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"num_microbatches": None}, "Give one of the two"),
        ({"microbatch_size": 2}, "Give one of the two"),
        ({"num_microbatches": 3}, "8 rows cannot be divided into 3 micro-batches"),
        ({"num_microbatches": None, "microbatch_size": 3}, "8 rows cannot be divided into micro-batches of 3"),
        ({"checkpoint_policy": "dot_olny"}, "Did you mean 'dot_only'"),
    ],
)
def test_what_cannot_be_a_pipeline_is_refused_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    layer, (x, scale) = pipeline(**fields), x_and_scale()
    with pytest.raises(ValueError, match=sentence):
        layer.apply({"params": weights_of(layer)}, x, scale)


def test_on_a_mesh_the_stages_send_to_neighbours_only_and_the_result_is_the_same() -> None:
    mesh = jax.make_mesh((4, 1, 2, 1), ("stage", "replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 4)
    rules = tuple((name, None if name == "embed" else axis) for name, axis in PIPELINE_RULES)
    layer, (x, scale) = pipeline(), x_and_scale()
    params = weights_of(layer)

    def apply(params: Any, x: jax.Array, scale: jax.Array) -> Any:
        with placed(mesh, rules), nn.logical_axis_rules(rules):
            return layer.apply({"params": params}, x, scale)

    place = jax.sharding.NamedSharding
    spec = jax.sharding.PartitionSpec
    placed_params = jax.device_put(params, place(mesh, spec("stage")))
    x_there, scale_there = jax.device_put((x, scale), place(mesh, spec("data")))
    compiled = jax.jit(apply).lower(placed_params, x_there, scale_there).compile()
    text = compiled.as_text()
    inside = text[: text.index("ENTRY")]
    assert not re.search(r"\b(all-gather|all-reduce|all-to-all|reduce-scatter)\(", inside)
    assert "collective-permute" in inside
    expected = in_a_row(params["sub"]["w"], x, scale)[0]
    np.testing.assert_allclose(compiled(placed_params, x_there, scale_there), expected, atol=1e-5)
