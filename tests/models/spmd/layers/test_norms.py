import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xdpx.models.spmd.layers.norms import BaseNorm, LayerNorm, NoNorm, RMSNorm

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(2.0, 3.0, (4, 6)).astype(np.float32)
SCALE = np.linspace(0.5, 1.5, 6, dtype=np.float32)
SHIFT = np.linspace(-1, 1, 6, dtype=np.float32)


def test_layer_norm_is_that_of_torch():
    layer = LayerNorm(dim=6, epsilon=1e-5, direct_scale=True)
    ours = layer.apply({"params": {"scale": SCALE, "bias": SHIFT}}, X)
    theirs = torch.nn.functional.layer_norm(*map(torch.tensor, (X,)), (6,), torch.tensor(SCALE), torch.tensor(SHIFT))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_scale_that_is_not_direct_is_added_to_one():
    indirect = LayerNorm(dim=6).apply({"params": {"scale": SCALE - 1, "bias": SHIFT}}, X)
    direct = LayerNorm(dim=6, direct_scale=True).apply({"params": {"scale": SCALE, "bias": SHIFT}}, X)
    np.testing.assert_allclose(indirect, direct, atol=1e-6)


def test_rms_norm_is_that_of_torch():
    ours = RMSNorm(dim=6, epsilon=1e-5).apply({"params": {"scale": SCALE}}, X)
    theirs = torch.nn.functional.rms_norm(torch.tensor(X), (6,), torch.tensor(SCALE), eps=1e-5)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_a_fresh_norm_changes_nothing_but_the_spread(cls: type[BaseNorm]):
    out = np.asarray(cls(dim=6).init_with_output(KEY, X)[0])
    np.testing.assert_allclose(np.mean(out**2, axis=-1), 1.0, rtol=1e-4)


def test_half_precision_is_computed_in_float32():
    layer = RMSNorm(dim=6, fprop_dtype=jnp.bfloat16)
    big = jnp.full((1, 6), 3e38, jnp.bfloat16) / 1e20
    out, variables = layer.init_with_output(KEY, big)
    assert out.dtype == jnp.bfloat16
    assert jnp.all(out == 1)
    assert variables["params"]["scale"].value.dtype == jnp.float32


def test_weights_can_be_left_out():
    assert LayerNorm(dim=6, use_scale=False, use_bias=False).init(KEY, X) == {}
    assert NoNorm(dim=6).apply({}, X) is X


def test_the_base_is_abstract():
    with pytest.raises(NotImplementedError, match="LayerNorm or RMSNorm"):
        BaseNorm(dim=6).apply({}, X)
