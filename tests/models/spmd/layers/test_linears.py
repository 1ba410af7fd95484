import jax
import jax.numpy as jnp
import numpy as np

from xdpx.models.spmd.base_layer import opened
from xdpx.models.spmd.layers.activations import GELU, Identity
from xdpx.models.spmd.layers.linears import Bias, FeedForward, Linear, MLPBlock

KEY = jax.random.key(0)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _plain(variables):
    return jax.tree.map(opened, variables["params"], is_leaf=lambda leaf: hasattr(leaf, "names"))


def test_linear_is_a_product():
    layer = Linear(input_dims=3, output_dims=4)
    variables = layer.init(KEY, X)
    np.testing.assert_allclose(layer.apply(variables, X), X @ _plain(variables)["w"], rtol=1e-6)


def test_bias_adds():
    layer = Bias(dims=3, bias_init=2.0)
    np.testing.assert_array_equal(layer.apply(layer.init(KEY, X), X), X + 2)


def test_feed_forward_is_activation_of_product_plus_bias():
    template = FeedForward.HParams(input_dims=3, output_dims=4, activation_tpl=GELU.HParams())
    layer = template.Instantiate()
    variables = layer.init(KEY, X)
    params = _plain(variables)
    assert set(params) == {"linear", "bias"}
    expected = jax.nn.gelu(X @ params["linear"]["w"] + params["bias"]["b"])
    np.testing.assert_allclose(layer.apply(variables, X), expected, rtol=1e-5, atol=1e-6)


def test_feed_forward_has_no_bias_unless_asked():
    layer = FeedForward(input_dims=3, output_dims=4, has_bias=False)
    assert set(_plain(jax.eval_shape(layer.init, KEY, X))) == {"linear"}


def test_the_documents_way_to_edit_a_nested_template_works():
    template = FeedForward.HParams(input_dims=3, output_dims=4)
    template.activation_tpl = Identity.HParams()
    template.linear_tpl.params_init = None
    layer = template.Instantiate()
    assert isinstance(layer.bind(layer.init(KEY, X)).activation, Identity)


def test_a_block_of_layers_ends_without_activation_and_alternates_its_axes():
    layer = MLPBlock(num_layers=2, input_dims=3, hidden_dims=8, output_dims=5)
    variables = layer.init(KEY, X)
    names = [variables["params"][f"layers_{index}"]["linear"]["w"].names for index in range(2)]
    assert names == [("embed", "mlp"), ("mlp", "embed")]
    assert jnp.any(layer.apply(variables, X) < 0)


def test_a_half_precision_layer_keeps_its_weights_whole():
    layer = Linear(input_dims=3, output_dims=4, fprop_dtype=jnp.bfloat16)
    variables = layer.init(KEY, X)
    assert layer.apply(variables, X).dtype == jnp.bfloat16
    assert opened(variables["params"]["w"]).dtype == jnp.float32
