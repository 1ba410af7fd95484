from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xdpx.models.spmd.base_layer import opened
from xdpx.models.spmd.decoding import cache
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.masks import causal_mask, padding_mask
from xdpx.models.spmd.layers.norms import RMSNorm
from xdpx.models.spmd.layers.positions import RelativeBias, RotaryPositionalEmbedding

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 6, 16)).astype(np.float32)


def _plain(variables: Any) -> Any:
    return jax.tree.map(opened, variables["params"], is_leaf=lambda leaf: hasattr(leaf, "names"))


def _weights(layer: Attention) -> Any:
    return _plain(jax.jit(layer.init)(KEY, X))


def _run(layer: Attention, params: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    return np.asarray(jax.jit(layer.apply)({"params": params}, *args, **kwargs))


def _torch(params: Any, *, causal: bool) -> np.ndarray:
    """Attention of torch with the same weights."""
    heads = [torch.einsum("btd,dnh->bnth", torch.tensor(X), torch.tensor(np.asarray(params[n]["w"]))) for n in _QKV]
    context = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal)
    return torch.einsum("bnth,nhd->btd", context, torch.tensor(np.asarray(params["post"]["w"]))).numpy()


_QKV = ("query", "key", "value")


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_that_of_torch(causal: bool):
    layer = Attention(input_dim=16, num_heads=4, causal=causal, per_dim_scale=False)
    params = _weights(layer)
    np.testing.assert_allclose(_run(layer, params, X), _torch(params, causal=causal), atol=1e-5)


def test_a_fresh_scale_per_dim_is_the_plain_scale():
    layer = Attention(input_dim=16, num_heads=4)
    params = _weights(layer)
    np.testing.assert_allclose(_run(layer, params, X), _torch(params, causal=False), atol=1e-5)


def test_a_combined_weight_is_three_weights():
    layer = Attention(input_dim=16, num_heads=2, use_bias=True)
    params = _weights(layer)
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    together = {
        "w": jnp.stack([params[name]["w"] for name in _QKV]),
        "b": jnp.stack([params[name]["b"] for name in _QKV]),
    }
    combined = {"combined_qkv": together, "post": params["post"], "scale": params["scale"]}
    other = Attention(input_dim=16, num_heads=2, use_bias=True, combine_qkv=True)
    assert jax.tree.map(jnp.shape, _plain(jax.eval_shape(other.init, KEY, X))) == jax.tree.map(jnp.shape, combined)
    np.testing.assert_allclose(_run(other, combined, X), _run(layer, params, X), atol=1e-5)


def test_grouped_queries_are_heads_with_repeated_keys_and_values():
    grouped = Attention(input_dim=16, num_heads=4, num_kv_heads=2, causal=True)
    params = _weights(grouped)
    assert params["key"]["w"].shape == (16, 2, 4)
    repeated = {**params, **{n: {"w": jnp.repeat(params[n]["w"], 2, axis=1)} for n in ("key", "value")}}
    full = Attention(input_dim=16, num_heads=4, causal=True)
    np.testing.assert_allclose(_run(grouped, params, X), _run(full, repeated, X), atol=1e-6)


def test_causal_attention_is_a_causal_mask():
    layer, causal = Attention(input_dim=16, num_heads=2), Attention(input_dim=16, num_heads=2, causal=True)
    params = _weights(layer)
    np.testing.assert_allclose(_run(layer, params, X, causal_mask(6)), _run(causal, params, X), atol=1e-6)


def test_what_a_mask_hides_changes_nothing_not_even_the_gradient():
    layer = Attention(input_dim=16, num_heads=2)
    params = _weights(layer)
    mask = padding_mask(jnp.array([[0, 0, 0, 0, 1, 1]] * 2))

    @jax.jit
    def seen(x: Any) -> Any:
        return jnp.sum(jnp.sin(layer.apply({"params": params}, x, mask))[:, :4])

    changed = X.copy()
    changed[:, 4:] += 5
    assert seen(X) == seen(changed)
    assert jnp.all(jax.grad(seen)(X)[:, 4:] == 0)


def test_logits_are_capped():
    layer = Attention(input_dim=16, num_heads=1, logit_cap=0.5, per_dim_scale=False)
    params = _weights(layer)
    loud = {**params, "query": {"w": params["query"]["w"] * 1e4}}
    uniform = _run(layer, {**params, "query": {"w": params["query"]["w"] * 0}}, X)
    assert np.abs(_run(layer, loud, X) - uniform).max() < 1.0
    assert not np.allclose(_run(layer, loud, X), uniform)


@pytest.mark.parametrize(
    ("causal", "given", "told"), [(False, {}, 1), (True, {}, 0), (False, {"bidirectional": False}, 0)]
)
def test_a_bias_that_cannot_tell_later_tokens_apart_is_told(
    capsys: pytest.CaptureFixture[str], causal: bool, given: dict[str, bool], told: int
) -> None:
    layer = Attention(input_dim=16, num_heads=2, causal=causal, relative_bias_tpl=RelativeBias.HParams(**given))
    jax.eval_shape(layer.init, KEY, X)
    assert capsys.readouterr().err.count("later ones, which all count as at distance 0") == told


def test_relative_bias_and_normed_heads_take_part():
    layer = Attention(
        input_dim=16, num_heads=2, relative_bias_tpl=RelativeBias.HParams(), qk_norm_tpl=RMSNorm.HParams()
    )
    params = _weights(layer)
    assert {"relative_bias", "query_norm", "key_norm"} < set(params)
    moved = {**params, "relative_bias": {"wrb": params["relative_bias"]["wrb"] + jnp.arange(32.0)[:, None]}}
    assert not np.allclose(_run(layer, params, X), _run(layer, moved, X))


def test_a_memory_gives_keys_and_values():
    layer = Attention(input_dim=16, num_heads=2, per_dim_scale=False, combine_qkv=True)
    params = _weights(layer)
    memory = np.random.default_rng(5).normal(size=(2, 3, 16)).astype(np.float32)
    out = _run(layer, params, X, memory=memory)
    assert out.shape == X.shape
    one = np.repeat(memory[:, :1], 3, axis=1)
    value = np.einsum("bd,dnh->bnh", memory[:, 0], params["combined_qkv"]["w"][2])
    expected = np.einsum("bnh,nhd->bd", value, params["post"]["w"])
    np.testing.assert_allclose(_run(layer, params, X, memory=one)[:, 3], expected, atol=1e-5)


def test_tokens_one_by_one_with_a_cache_are_all_tokens_at_once():
    layer = Attention(
        input_dim=16, num_heads=4, num_kv_heads=2, causal=True, rotary_tpl=RotaryPositionalEmbedding.HParams()
    )
    params = _weights(layer)
    whole = _run(layer, params, X)

    @jax.jit
    def step(kept: Any, x: Any, positions: Any) -> Any:
        with cache.caching(8):
            return layer.apply({"params": params, **kept}, x, None, positions, mutable=[cache.COLLECTION])

    positions = jnp.broadcast_to(jnp.arange(6), (2, 6))
    first, kept = step({}, X[:, :3], positions[:, :3])
    rows = [first]
    for at in range(3, 6):
        out, kept = step(kept, X[:, at : at + 1], positions[:, at : at + 1])
        rows.append(out)
    np.testing.assert_allclose(jnp.concatenate(rows, axis=1), whole, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_the_attention_of_jax_is_ours(causal: bool):
    template = Attention.HParams(input_dim=32, num_heads=4, num_kv_heads=2, causal=causal, fprop_dtype=jnp.bfloat16)
    template.relative_bias_tpl = RelativeBias.HParams()
    ours, fused = (template.clone().set(flash=how).Instantiate() for how in ("never", "always"))
    wide = np.concatenate([X, X], axis=-1)
    variables = jax.jit(ours.init)(KEY, wide)
    mask = padding_mask(jnp.array([[0, 0, 0, 0, 1, 1]] * 2))
    run = [jax.jit(layer.apply)(variables, wide, mask).astype(jnp.float32) for layer in (ours, fused)]
    np.testing.assert_allclose(*run, atol=0.03)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"num_heads": 3}, "does not divide input_dim 16"),
        ({"num_heads": 4, "num_kv_heads": 3}, "does not divide num_heads 4"),
        ({"num_heads": 4, "num_kv_heads": 2, "combine_qkv": True}, "Set combine_qkv to False"),
        ({"num_heads": 4, "flash": "always"}, "do not allow the fused kernel"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(fields: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        jax.eval_shape(Attention(input_dim=16, **fields).init, KEY, X)
