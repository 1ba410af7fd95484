from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdpx.models.spmd.base_layer import BaseLayer, opened, total_aux_loss
from xdpx.models.spmd.decoding import cache
from xdpx.models.spmd.layers.linears import Linear
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
BLOCK = Transformer.HParams(input_dims=8, hidden_dims=16, num_heads=2, causal=True)


def _plain(variables: Any) -> Any:
    return jax.tree.map(opened, variables["params"], is_leaf=lambda leaf: hasattr(leaf, "names"))


def _loss(layer: Any, x: Any) -> Any:
    """Return a function of the weights that gives ((loss, output), gradients)."""

    def loss(params: Any) -> Any:
        y = layer.apply({"params": params}, x)
        return jnp.mean(jnp.sin(y)), y

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def test_a_repeated_stack_is_the_unrolled_one_with_the_same_weights_gradients_too():
    unrolled = StackedTransformer.HParams(num_layers=2, layer_tpl=BLOCK).Instantiate()
    params = _plain(jax.jit(unrolled.init)(KEY, X))
    stacked = {"sub": jax.tree.map(lambda *leaves: jnp.stack(leaves), *(params[f"x_layers_{i}"] for i in range(2)))}
    repeated = StackedTransformerRepeated.HParams(body=BLOCK, x_times=2).Instantiate()
    (one, output), grads = _loss(unrolled, X)(params)
    (two, other), others = _loss(repeated, X)(stacked)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    again = {f"x_layers_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], others["sub"]) for i in range(2)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), grads, again)
    np.testing.assert_allclose(output, other, atol=1e-6, rtol=1e-6)


def test_weights_of_a_repeated_block_have_a_leading_axis_of_layers_and_differ():
    layer = StackedTransformerRepeated.HParams(body=BLOCK, x_times=3).Instantiate()
    variables = jax.jit(layer.init)(KEY, X)
    box = variables["params"]["sub"]["ff_layer"]["ffn_layer1"]["linear"]["w"]
    assert (box.value.shape, box.names) == ((3, 8, 16), ("layers", "embed", "mlp"))
    assert not np.allclose(box.value[0], box.value[1])


def test_a_stack_of_several_blocks_can_be_repeated():
    body = StackedTransformer.HParams(num_layers=2, layer_tpl=BLOCK)
    shapes = jax.eval_shape(StackedTransformerRepeated(body=body, x_times=2).init, KEY, X)["params"]["sub"]
    assert set(shapes) == {"x_layers_0", "x_layers_1"}


class Counted(BaseLayer):
    """A block that reports."""

    def setup(self):
        self.create_child("one", Linear.HParams(input_dims=8, output_dims=8, shared_weight_layer_id="tied"))
        self.create_child("two", Linear.HParams(input_dims=8, output_dims=8, shared_weight_layer_id="tied"))

    def __call__(self, x):
        self.add_summary("mean", jnp.mean(x))
        self.add_aux_loss("ones", jnp.ones(()))
        return self.two(self.one(x))


def test_summaries_and_losses_of_all_iterations_are_collected():
    layer = StackedTransformerRepeated.HParams(body=Counted.HParams(), x_times=3).Instantiate()
    variables = jax.jit(layer.init)(KEY, X)
    _, new = layer.apply({"params": variables["params"]}, X, mutable=["summaries", "aux_loss"])
    assert new["summaries"]["sub"]["mean"].shape == (3,)
    assert [float(part) for part in total_aux_loss(new["aux_loss"])] == [3.0, 3.0]


def test_layers_shared_inside_a_repeated_block_are_shared_within_an_iteration():
    layer = StackedTransformerRepeated.HParams(body=Counted.HParams(), x_times=3).Instantiate()
    shapes = jax.tree.map(jnp.shape, _plain(jax.eval_shape(layer.init, KEY, X)))
    assert shapes == {"sub": {"tied": {"w": (3, 8, 8)}}}


def test_a_cache_is_stacked_over_the_layers():
    layer = StackedTransformerRepeated.HParams(body=BLOCK, x_times=2).Instantiate()
    params = _plain(jax.jit(layer.init)(KEY, X))
    whole = jax.jit(layer.apply)({"params": params}, X)

    @jax.jit
    def step(kept: Any, x: Any, positions: Any) -> Any:
        with cache.caching(6):
            return layer.apply({"params": params, **kept}, x, None, positions, mutable=[cache.COLLECTION])

    positions = jnp.broadcast_to(jnp.arange(5), (2, 5))
    _, kept = step({}, X[:, :4], positions[:, :4])
    assert {leaf.shape for leaf in jax.tree.leaves(kept)} == {(2, 2, 6, 2, 4)}
    last, _ = step(kept, X[:, 4:], positions[:, 4:])
    np.testing.assert_allclose(last[:, 0], whole[:, 4], atol=1e-5)


def test_the_program_does_not_grow_with_the_number_of_layers():
    def size(x_times: int) -> int:
        layer = StackedTransformerRepeated.HParams(body=BLOCK, x_times=x_times).Instantiate()
        shapes = jax.tree.map(opened, jax.eval_shape(layer.init, KEY, X), is_leaf=lambda leaf: hasattr(leaf, "names"))
        return len(jax.jit(layer.apply).lower(shapes, X).as_text().splitlines())

    assert size(2) == size(40)
