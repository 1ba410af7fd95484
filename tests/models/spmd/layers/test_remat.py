from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.models.spmd.layers.remat import NAMES, POLICIES, policy_named, saved


def block(w: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
    """Attention and feed-forward in miniature, with the marks that a transformer layer gives."""
    query, key, value = (saved(name, x @ w[0]) for name in ("query_proj", "key_proj", "value_proj"))
    weights = jax.nn.softmax(saved("attention_logits", query @ key.swapaxes(-1, -2)))
    context = saved("context", weights @ value)
    x = x + saved("out_proj", jnp.tanh(context) @ w[1])
    return saved("transformer_layer_out", x + saved("ffn2", jnp.tanh(saved("ffn1", x @ w[2])) @ w[3]))


def products(policy: str, *, stages: bool = False, told: bool = True) -> int:
    """Count the products of a step forward and back under a policy."""
    w, x = tuple(jnp.ones((4, 4)) for _ in range(4)), jnp.ones((2, 3, 4))
    chosen: Any = policy_named(policy, vmapped=stages and told)

    def loss(w: Any, x: jax.Array) -> jax.Array:
        if stages:
            w, x = jax.tree.map(lambda each: jnp.stack([each, each]), (w, x))
            return jax.checkpoint(jax.vmap(block), policy=chosen)(w, x).sum()
        return jax.checkpoint(block, policy=chosen)(w, x).sum()

    return str(jax.make_jaxpr(jax.grad(loss))(w, x)).count("dot_general")


def test_a_policy_that_keeps_more_computes_less_again() -> None:
    counts = {name: products(name) for name in POLICIES}
    least, most = counts["everything"], counts["nothing"]
    assert least < counts["dot_except_logits"] < counts["dot_for_mlperf_200b"] < most
    assert least <= counts["dot_only"] < counts["dot_with_no_batch_dim"] < most
    assert counts["context_and_out_proj"] < most
    assert counts["qkv_out_proj"] < counts["out_proj"]


def test_products_without_batch_dims_are_kept_in_vmapped_stages_too() -> None:
    assert products("dot_with_no_batch_dim", stages=True, told=False) == products("nothing", stages=True)
    kept = products("dot_with_no_batch_dim", stages=True)
    assert kept < products("nothing", stages=True)
    assert kept == products("dot_with_no_batch_dim")


def test_names_are_accepted_as_experiments_spell_them() -> None:
    assert products("SAVE_DOT_ONLY") == products("dot_only")


def test_a_misspelt_policy_or_mark_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="Did you mean 'dot_only'"):
        policy_named("SAVE_DOT_OLNY")
    with pytest.raises(ValueError, match="Did you mean 'context'"):
        saved("contxt", jnp.ones(1))
    assert set(NAMES) >= {"ffn1", "out_proj"}
