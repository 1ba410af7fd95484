from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiers import some
from xdpx.config.faults import ConfigError
from xdpx.models.spmd.base_layer import eval_context, opened
from xdpx.models.spmd.layers.activations import SiLU
from xdpx.models.spmd.layers.norms import RMSNorm
from xdpx.models.spmd.layers.transformer import (
    StackedTransformer,
    Transformer,
    TransformerFeedForward,
    recomputed,
)

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
BLOCK = Transformer.HParams(input_dims=8, hidden_dims=16, num_heads=2)


def _plain(variables: Any) -> Any:
    return jax.tree.map(opened, variables["params"], is_leaf=lambda leaf: hasattr(leaf, "names"))


def _rms(x: Any) -> Any:
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-6)


def test_a_gated_part_is_the_product_of_both():
    template = TransformerFeedForward.HParams(
        input_dims=8, hidden_dims=16, use_gated_activation=True, has_bias=False, activation_tpl=SiLU.HParams()
    )
    layer = template.set(norm_tpl=RMSNorm.HParams()).Instantiate()
    params = _plain(layer.init(KEY, X))
    one, gate, two = (params[name]["linear"]["w"] for name in ("ffn_layer1", "ffn_layer1_gate", "ffn_layer2"))
    expected = X + (jax.nn.silu(_rms(X) @ gate) * (_rms(X) @ one)) @ two
    np.testing.assert_allclose(layer.apply({"params": params}, X), expected, atol=1e-5)


@pytest.mark.parametrize("policy", ["pre", "post", "primer_hybrid", "post_skip"])
def test_norms_stand_where_their_policy_says(policy: str):
    template = TransformerFeedForward.HParams(input_dims=8, hidden_dims=16, norm_policy=policy)
    layer = template.set(norm_tpl=RMSNorm.HParams()).Instantiate()
    params = _plain(layer.init(KEY, X))

    def part(x: Any) -> Any:
        return np.maximum(x @ params["ffn_layer1"]["linear"]["w"], 0) @ params["ffn_layer2"]["linear"]["w"]

    expected = {
        "pre": lambda: X + part(_rms(X)),
        "post": lambda: _rms(X + part(X)),
        "primer_hybrid": lambda: X + _rms(part(_rms(X))),
        "post_skip": lambda: X + _rms(part(X)),
    }[policy]()
    np.testing.assert_allclose(layer.apply({"params": params}, X), expected, atol=1e-5)


def test_an_unknown_norm_policy_is_refused():
    with pytest.raises(TypeError, match="norm_policy"):
        Transformer.HParams(norm_policy="before")


def test_a_block_can_attend_to_a_memory():
    layer = BLOCK.clone().set(use_cross_attention=True, causal=True).Instantiate()
    memory = X[:, :3] * 2
    variables = jax.jit(layer.init)(KEY, X, memory=memory)
    assert {"self_attention", "cross_attention", "ff_layer"} == set(variables["params"])
    mask = jnp.array([True, True, False])[None, None, None]
    run = jax.jit(lambda m: layer.apply(variables, X, memory=m, memory_mask=mask))
    changed = memory.copy()
    changed[:, 2] += 1
    np.testing.assert_array_equal(run(memory), run(changed))
    changed[:, 1] += 1
    assert not np.allclose(run(memory), run(changed))


def test_dropout_acts_in_training_only():
    layer = BLOCK.clone().set(dropout_prob=0.5).Instantiate()
    variables = layer.init({"params": KEY, "random": KEY}, X)
    one, two = (layer.apply(variables, X, rngs={"random": jax.random.key(seed)}) for seed in (1, 2))
    assert not np.allclose(one, two)
    with eval_context():
        np.testing.assert_array_equal(layer.apply(variables, X), layer.apply(variables, X))


def test_a_stack_is_its_blocks_one_after_another():
    stack = StackedTransformer.HParams(num_layers=2, layer_tpl=BLOCK).Instantiate()
    variables = jax.jit(stack.init)(KEY, X)
    params = _plain(variables)
    x = X
    for index in range(2):
        x = BLOCK.Instantiate().apply({"params": params[f"x_layers_{index}"]}, x)
    np.testing.assert_allclose(stack.apply(variables, X), x, atol=1e-6)


def test_a_stack_sets_the_sizes_of_its_blocks():
    stack = StackedTransformer.HParams(num_layers=1, input_dims=8, hidden_dims=24, num_heads=4, dim_per_head=3)
    shapes = jax.eval_shape(stack.Instantiate().init, KEY, X)["params"]["x_layers_0"]
    assert opened(shapes["self_attention"]["attention"]["query"]["w"]).shape == (8, 4, 3)
    assert opened(shapes["ff_layer"]["ffn_layer1"]["linear"]["w"]).shape == (8, 24)


def test_blocks_can_have_a_template_each():
    other = BLOCK.clone().set(hidden_dims=32)
    stack = StackedTransformer.HParams(num_layers=2, layer_tpl=[BLOCK, other]).Instantiate()
    shapes = jax.eval_shape(stack.init, KEY, X)["params"]
    widths = [opened(shapes[f"x_layers_{i}"]["ff_layer"]["ffn_layer1"]["bias"]["b"]).shape for i in range(2)]
    assert widths == [(16,), (32,)]
    with pytest.raises(ValueError, match="2 templates for 3 layers"):
        jax.eval_shape(StackedTransformer(num_layers=3, layer_tpl=[BLOCK, other]).init, KEY, X)


def test_named_blocks_get_another_feed_forward_part():
    class Marked(TransformerFeedForward):
        """Stands for a mixture of experts."""

        def setup(self):
            super().setup()
            self.create_child("router", TransformerFeedForward.HParams(input_dims=8, hidden_dims=2))

        def __call__(self, x, paddings=None):
            return super().__call__(self.router(x), paddings)

    stack = StackedTransformer.HParams(num_layers=2, layer_tpl=BLOCK, moe_layers=(1,))
    with pytest.raises(ValueError, match="moe_tpl: is None"):
        jax.eval_shape(stack.Instantiate().init, KEY, X)
    shapes = jax.eval_shape(stack.set(moe_tpl=Marked.HParams()).Instantiate().init, KEY, X)["params"]
    assert ["router" in shapes[f"x_layers_{i}"]["ff_layer"] for i in range(2)] == [False, True]
    for indices, problem in (((1, 2), "names block 2, but there are blocks 0 to 1"), ((-1,), "-1"), ((), "is empty")):
        with pytest.raises(ConfigError, match=f"moe_layers: .*{problem}"):
            jax.eval_shape(stack.set(moe_layers=indices).Instantiate().init, KEY, X)


@pytest.mark.parametrize("policy", some(["nothing", "context_and_out_proj"], ["context_and_out_proj"]))
def test_recomputation_changes_no_value_and_no_gradient(policy: str):
    stacks = [
        StackedTransformer.HParams(num_layers=1, layer_tpl=BLOCK, checkpoint_policy=name).Instantiate()
        for name in ("everything", policy)
    ]
    variables = {"params": _plain(jax.jit(stacks[0].init)(KEY, X))}

    def loss(stack: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda v: jnp.sum(jnp.sin(stack.apply(v, X)))))(variables)

    (one, grads), (two, others) = map(loss, stacks)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, others)


def test_keeping_everything_needs_no_recomputation():
    layer = BLOCK.Instantiate()
    bound = layer.bind(jax.jit(layer.init)(KEY, X))
    text = str(jax.make_jaxpr(lambda x: recomputed(bound, "everything")(x))(X))
    assert "remat" not in text
    assert "checkpoint" not in text
