import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.models.spmd.base_layer import opened
from xdpx.models.spmd.layers.embeddings import BaseSoftmax, Embedding, FullSoftmax, SharedEmbeddingSoftmax, capped

KEY = jax.random.key(0)
IDS = jnp.array([[1, 2, 0], [4, 4, 3]])
TABLE = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


@pytest.mark.parametrize("style", ["index", "matmul"])
def test_rows_are_looked_up_and_scaled_by_the_root_of_the_width(style: str):
    layer = Embedding(num_classes=5, input_dims=4, lookup_style=style, scale_sqrt_depth=True)
    np.testing.assert_allclose(layer.apply({"params": {"emb_var": TABLE}}, IDS), TABLE[IDS] * 2, rtol=1e-6)


def test_a_lookup_style_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="lookup_style"):
        Embedding.HParams(lookup_style="indices")


def test_a_tied_table_is_stored_once_and_serves_both_ways():
    layer = SharedEmbeddingSoftmax(num_classes=5, input_dims=4)
    variables = layer.init(KEY, jnp.ones((1, 2, 4)))
    assert list(variables["params"]) == ["emb_var"]
    assert variables["params"]["emb_var"].names == ("vocab", "embed")
    given = {"params": {"emb_var": TABLE}}
    x = np.ones((2, 3, 4), np.float32)
    np.testing.assert_allclose(layer.apply(given, x), x @ TABLE.T, rtol=1e-5)
    looked_up = layer.apply(given, IDS, method="emb_lookup")
    np.testing.assert_allclose(looked_up, TABLE[IDS] * 2, rtol=1e-6)


def test_tables_start_with_a_deviation_of_one_over_the_root_of_the_width():
    layer = SharedEmbeddingSoftmax(num_classes=1000, input_dims=16)
    table = np.asarray(opened(layer.init(KEY, jnp.ones((1, 16)))["params"]["emb_var"]))
    assert table.std() == pytest.approx(0.25, rel=0.02)


def test_logits_are_float32_with_bias_and_cap():
    layer = FullSoftmax(num_classes=5, input_dims=4, has_bias=True, soft_cap_logits=3.0, fprop_dtype=jnp.bfloat16)
    params = {"w": TABLE.T * 8, "b": np.ones(5, np.float32)}
    out = layer.apply({"params": params}, np.ones((2, 4), np.float32))
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, 3 * np.tanh((np.ones((2, 4)) @ TABLE.T * 8 + 1) / 3), atol=0.05)
    assert np.abs(out).max() <= 3.0


def test_no_cap_leaves_values_alone():
    x = jnp.array([100.0])
    assert capped(x, None) is x
    assert capped(x, 0.0) is x
    assert capped(x, 30.0)[0] == pytest.approx(30 * np.tanh(100 / 30))


def test_the_base_is_abstract():
    with pytest.raises(NotImplementedError, match="FullSoftmax"):
        BaseSoftmax(num_classes=5, input_dims=4).apply({}, jnp.ones((1, 4)))
