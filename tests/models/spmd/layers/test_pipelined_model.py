from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.tiers import nightly
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import Transformer
from xdpx.models.spmd.sharding import PIPELINE_RULES, placed, resolve
from xdpx.utils.nested_map import NestedMap

STAGES, ROWS, LENGTH = 2, 8, 6

pytestmark = pytest.mark.slow


def model(stack: Any) -> Any:
    sizes = {"vocab_size": 32, "model_dims": 16, "hidden_dims": 32, "num_heads": 2, "packed_input": True}
    return LanguageModel(lm_tpl=TransformerLm.HParams(**sizes, stacked_transformer_tpl=stack))


def repeated() -> Any:
    return model(StackedTransformerRepeated.HParams(body=Transformer.HParams(), x_times=4))


def pipelined(rounds: int) -> Any:
    body: Any = Transformer.HParams()
    if rounds == 1:
        body = StackedTransformerRepeated.HParams(body=body, x_times=2, checkpoint_policy="everything")
    return model(Pipelined.HParams(body=body, num_stages=STAGES, circular_repeat=rounds, microbatch_size=2))


def batch() -> NestedMap:
    ids = jax.random.randint(jax.random.key(0), (ROWS, LENGTH), 1, 32)
    segments = jnp.where(jnp.arange(LENGTH) < jnp.arange(ROWS)[:, None] % 4 + 1, 1, 2)
    return NestedMap(ids=ids, labels=jnp.roll(ids, -1, 1), weights=jnp.ones(ids.shape), segment_ids=segments)


def as_stages(params: Any, rounds: int) -> Any:
    """Lay the weights of a repeated stack out as a pipeline has them."""
    stack = params["lm"]["transformer"]["sub"]
    leading = (STAGES, 2) if rounds == 1 else (2, STAGES)
    cut = jax.tree.map(lambda w: w.reshape(*leading, *w.shape[1:]), stack)
    inner = {"sub": cut} if rounds == 1 else cut
    return {"lm": {**params["lm"], "transformer": {"sub": inner}}}


@nightly(
    "tests/models/spmd/layers/test_pipelined.py::test_a_pipelined_stack_equals_its_layers_in_a_row_with_gradients_and_auxiliary_losses"
)
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_pipelined_model_on_a_mesh_has_loss_and_gradients_of_the_repeated_one(rounds: int) -> None:
    mesh = jax.make_mesh((STAGES, 1, 2, 2), ("stage", "replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 4)
    plain, layer, data = repeated(), pipelined(rounds), batch()
    params = meta.unbox(jax.jit(plain.init)(jax.random.key(1), data))["params"]
    boxed = jax.eval_shape(layer.init, jax.random.key(1), data)["params"]

    def loss(layer: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda p, b: layer.apply({"params": p}, b)[0]["total_loss"][0]))

    expected, gradients = loss(plain)(params, data)

    def place(box: Any, w: jax.Array) -> jax.Array:
        spec = resolve(box.names, w.shape, PIPELINE_RULES, dict(mesh.shape))
        return jax.device_put(w, NamedSharding(mesh, spec))

    there = jax.tree.map(place, boxed, as_stages(params, rounds), is_leaf=lambda node: hasattr(node, "names"))
    data_there = jax.device_put(data, NamedSharding(mesh, PartitionSpec("data")))
    with placed(mesh, PIPELINE_RULES):
        found, our_gradients = loss(layer)(there, data_there)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), our_gradients, as_stages(gradients, rounds))
