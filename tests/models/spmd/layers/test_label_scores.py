"""The loss in chunks of tokens beside the loss of all logits."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiers import LONG, some
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers import token_chunks
from xdpx.models.spmd.layers.embeddings import Embedding, FullSoftmax, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.token_chunks import CHUNK_TOKENS, chunk_for
from xdpx.models.spmd.sharding import TRANSFORMER_RULES, placed
from xdpx.utils.nested_map import NestedMap

ROWS, TOKENS, WORDS = 4, 12, 48
HALF: dict[str, Any] = {"label_smoothing_prob": 0.1, "z_loss_weight": 1e-2, "fprop_dtype": jnp.bfloat16}


def model(**fields: Any) -> LanguageModel:
    own = fields.pop("own_softmax", False)
    softmax = FullSoftmax.HParams(has_bias=True) if own else SharedEmbeddingSoftmax.HParams(soft_cap_logits=3.0)
    lm = TransformerLm.HParams(
        vocab_size=WORDS, model_dims=16, hidden_dims=16, num_layers=1, num_heads=2, softmax_tpl=softmax,
        separate_embedding_tpl=Embedding.HParams() if own else None,
    )  # fmt: skip
    return LanguageModel.HParams(lm_tpl=lm, **fields).Instantiate()


def batch() -> NestedMap:
    dice = np.random.default_rng(0)
    ids = dice.integers(1, WORDS, (ROWS, TOKENS)).astype(np.int32)
    weights = dice.random((ROWS, TOKENS)).astype(np.float32)
    return NestedMap(ids=ids, labels=np.roll(ids, -1, 1), weights=weights, paddings=0 * weights)


def outcome(layer: LanguageModel, variables: Any, given: Any) -> Any:
    def loss(params: Any) -> Any:
        metrics, per_example = layer.apply({"params": params}, given, mutable=[])[0]
        return metrics["total_loss"][0], (metrics, per_example)

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(variables["params"])


@pytest.mark.parametrize("fields", some([{}, {"own_softmax": True}, HALF], [{}, HALF]))
def test_chunks_give_the_loss_metrics_and_gradients_of_all_logits(fields: dict[str, Any]) -> None:
    whole, given = model(logits_chunk_tokens=0, **fields), batch()
    variables = jax.jit(whole.init)(jax.random.key(0), given)
    wanted = outcome(whole, variables, given)
    # One chunk that does not divide the tokens; in the long form one token at a time, too.
    for chunk in (5 * ROWS, 1) if LONG and not fields else (5 * ROWS,):
        found = outcome(model(logits_chunk_tokens=chunk, **fields), variables, given)
        half = "fprop_dtype" in fields  # all logits round the table's gradient to 16 bits, chunks add up in 32
        for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True):
            close = {"rtol": 2e-2, "atol": 2e-3} if half else {"rtol": 1e-6, "atol": 1e-6}
            np.testing.assert_allclose(one, other, err_msg=str(path), **close)


def test_devices_that_share_rows_and_words_give_the_same_and_sum_the_tables_gradient_up_once() -> None:
    layer, given = model(logits_chunk_tokens=2), batch()
    variables = jax.tree.map(
        lambda leaf: getattr(leaf, "value", leaf), jax.jit(layer.init)(jax.random.key(0), given),
        is_leaf=lambda leaf: hasattr(leaf, "value"),
    )  # fmt: skip
    wanted = outcome(layer, variables, given)
    mesh = jax.make_mesh((1, 2, 2), ("replica", "data", "mdl"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    params = jax.device_put(variables, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))["params"]

    def loss(params: Any, given: Any) -> Any:
        return layer.apply({"params": params}, given, mutable=[])[0][0]["total_loss"][0]

    with placed(mesh, TRANSFORMER_RULES):
        compiled = jax.jit(jax.value_and_grad(loss)).lower(params, jax.device_put(given, rows)).compile()
    found = compiled(params, jax.device_put(given, rows))
    np.testing.assert_allclose(found[0], wanted[0][0], rtol=1e-6)
    for one, other in zip(jax.tree.leaves(found[1]), jax.tree.leaves(wanted[1]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    inside = "\n".join(re.findall(r"\n%?[\w.\-]*(?:region|body)[^\n]*\{\n(.*?)\n\}", compiled.as_text(), re.S))
    table = [line for line in inside.splitlines() if re.search(r"all-reduce|reduce-scatter|all-gather", line)]
    assert not [line for line in table if f",{WORDS // 2},16]" in line or f"[{WORDS // 2},16]" in line], table


def test_no_array_of_the_traced_update_has_all_logits() -> None:
    given = batch()

    def text(layer: LanguageModel) -> str:
        variables = jax.eval_shape(layer.init, jax.random.key(0), given)
        return str(jax.make_jaxpr(lambda params: outcome(layer, {"params": params}, given))(variables["params"]))

    shapes = (f"[{ROWS},{TOKENS},{WORDS}]", f"[{ROWS * TOKENS},{WORDS}]")
    assert any(shape in text(model(logits_chunk_tokens=0)) for shape in shapes)
    assert not any(shape in text(model(logits_chunk_tokens=8)) for shape in shapes)


def test_a_model_that_looks_at_logits_itself_has_them_all() -> None:
    class Own(LanguageModel):
        def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> Any:
            assert predictions.logits.shape == (ROWS, TOKENS, WORDS)
            return super().compute_loss(predictions, batch)

    given = batch()
    layer = Own.HParams(lm_tpl=model().lm_tpl, logits_chunk_tokens=4).Instantiate()
    metrics, _ = jax.jit(layer.init_with_output)(jax.random.key(0), given)[0]
    assert np.isfinite(metrics["total_loss"][0])


def test_tokens_are_looked_up_by_products_of_a_chunk_where_all_one_hot_vectors_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = batch().ids
    by_rows, by_products = (
        Embedding.HParams(num_classes=WORDS, input_dims=8, lookup_style=how).Instantiate()
        for how in ("index", "matmul")
    )
    variables = by_rows.init(jax.random.key(0), ids)

    def run(layer: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda given: jnp.sum(jnp.sin(layer.apply(given, ids)))))(variables)

    monkeypatch.setattr(token_chunks, "LARGE", 0)
    monkeypatch.setattr(token_chunks, "CHUNK_TOKENS", 5 * ROWS)
    assert f"[{ROWS},{TOKENS},{WORDS}]" not in str(jax.make_jaxpr(by_products.apply)(variables, ids))
    for one, other in zip(jax.tree.leaves(run(by_rows)), jax.tree.leaves(run(by_products)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_chunks_begin_where_logits_are_large() -> None:
    assert chunk_for(32, 1024, 32_000, None) == CHUNK_TOKENS // 32
    assert chunk_for(4, 128, 32_000, None) == 0
    assert chunk_for(4096, 1024, 32_000, None) == 1
    assert chunk_for(2, 1000, 100_000, None) == 335
    assert chunk_for(2, 1000, 32_000, None) == 0
    assert chunk_for(4, 128, 32_000, 64) == 16
    assert chunk_for(32, 1024, 32_000, 0) == 0
