from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.base_layer import eval_context
from xdpx.models.spmd.bert_model import BertModel, masked_tokens, tied_table
from xdpx.models.spmd.layers.bert import BertEncoder
from xdpx.models.spmd.layers.embeddings import Embedding
from xdpx.utils.nested_map import NestedMap

MASK = 3


def model(**fields: Any) -> Any:
    encoder = BertEncoder.HParams(
        vocab_size=64, model_dims=16, hidden_dims=32, num_heads=2, num_layers=1, embedding_tpl=tied_table()
    )
    return BertModel(**{"encoder_tpl": encoder, "mask_token_id": MASK, "random_low": 5, **fields})


def batch(rows: int = 4, length: int = 8) -> NestedMap:
    ids = jax.random.randint(jax.random.key(0), (rows, length), 5, 64)
    paddings = jnp.zeros((rows, length)).at[:, -2:].set(1)
    return NestedMap(ids=ids, paddings=paddings)


@pytest.fixture(scope="module")
def params() -> Any:
    keys = {"params": jax.random.key(1), "random": jax.random.key(2)}
    return meta.unbox(jax.jit(model().init)(keys, batch()))["params"]


def outcome(layer: Any, params: Any, data: NestedMap, **options: Any) -> Any:
    return jax.jit(lambda d: layer.apply({"params": params}, d, **options))(data)


def test_tokens_are_hidden_in_the_shares_of_the_paper() -> None:
    ids = jax.random.randint(jax.random.key(0), (64, 512), 5, 64)
    may_be = jnp.arange(512) < 400
    seen, chosen = masked_tokens(jax.random.key(1), ids, may_be & (ids > 0), model())
    share = float(chosen[:, :400].mean())
    assert share == pytest.approx(0.15, abs=0.01)
    assert float(chosen[:, 400:].sum()) == 0
    np.testing.assert_array_equal(seen[chosen == 0], ids[chosen == 0])
    hidden, same = (np.asarray(each)[np.asarray(chosen) > 0].mean() for each in (seen == MASK, seen == ids))
    assert hidden == pytest.approx(0.8, abs=0.02)
    assert same == pytest.approx(0.1 + 0.1 / 59, abs=0.02)


def test_the_batch_says_what_is_guessed_and_only_that_counts(params: Any) -> None:
    data = batch()
    data["masked_ids"] = data.ids.at[:, 1].set(MASK)
    data["masked_pos"] = jnp.zeros(data.ids.shape).at[:, 1].set(1)
    metrics, per_example = outcome(model(), params, data)
    assert metrics["num_predictions"][0] == 4
    np.testing.assert_allclose(metrics["total_loss"][0], -per_example.scores.mean(), rtol=1e-5)
    elsewhere = NestedMap(data, labels=data.ids.at[:, 2].add(1))
    np.testing.assert_allclose(outcome(model(), params, elsewhere)[0]["total_loss"], metrics["total_loss"], rtol=1e-6)


def test_predicting_only_where_it_is_asked_gives_the_same_loss(params: Any) -> None:
    data = batch()
    data["masked_ids"] = data.ids.at[:, 1:3].set(MASK)
    data["masked_pos"] = jnp.zeros(data.ids.shape).at[:2, 1].set(1).at[:, 2].set(1)
    everywhere, few = (outcome(model(max_predictions=most), params, data)[0] for most in (None, 2))
    for name, value in everywhere.items():
        np.testing.assert_allclose(few[name], value, rtol=1e-5, err_msg=name)


def test_evaluation_hides_the_same_tokens_every_time_and_training_others_each_time(params: Any) -> None:
    with eval_context():
        one, other = (outcome(model(), params, batch())[0]["total_loss"][0] for _ in range(2))
    assert one == other
    layer, given = model(), {"method": "compute_predictions"}
    hide = jax.jit(lambda key: layer.apply({"params": params}, batch(), rngs={"random": key}, **given).weights)
    seen = [hide(jax.random.key(seed)) for seed in (1, 2)]
    assert not np.array_equal(*seen)
    assert all(float(each[:, -2:].sum()) == 0 for each in seen)


def test_evaluation_hides_the_same_tokens_of_a_row_in_any_batch(params: Any) -> None:
    predict = jax.jit(lambda d: model().apply({"params": params}, d, method="compute_predictions").weights)

    def hidden(data: NestedMap) -> Any:
        with eval_context():
            return np.asarray(predict(data))

    whole = batch(rows=64)
    halves = [whole.Transform(lambda array, at=at: array[at : at + 32]) for at in (0, 32)]
    more = ((0, 0), (0, 4))
    wider = NestedMap(ids=jnp.pad(whole.ids, more), paddings=jnp.pad(whole.paddings, more, constant_values=1))
    found = hidden(whole)
    np.testing.assert_array_equal(found, np.concatenate([*map(hidden, halves)]))
    np.testing.assert_array_equal(found, hidden(wider)[:, :8])
    assert found[:, :6].mean() == pytest.approx(0.15, abs=0.05)
    assert (found[:, :6].mean(axis=0) < 0.3).all()  # not the same places in all rows


def test_gradients_reach_the_table_by_input_and_output(params: Any) -> None:
    data = batch()
    data["masked_ids"], data["masked_pos"] = data.ids, jnp.ones(data.ids.shape)
    loss = jax.jit(jax.grad(lambda p: model().apply({"params": p}, data)[0]["total_loss"][0]))
    gradients = loss(params)
    assert float(jnp.abs(gradients["encoder"]["embedding"]["emb_var"]).min(0).max()) > 0
    assert float(jnp.abs(gradients["head"]["dense"]["linear"]["w"]).max()) > 0


def test_a_table_that_gives_no_logits_is_refused() -> None:
    layer = model(encoder_tpl=model().encoder_tpl.clone().set(embedding_tpl=Embedding.HParams()))
    with pytest.raises(ValueError, match="gives no logits"):
        layer.init(jax.random.key(0), batch())


def test_a_mask_that_the_vocabulary_does_not_have_is_refused_where_tokens_are_chosen() -> None:
    keys = {"params": jax.random.key(1), "random": jax.random.key(2)}
    for name in ("mask_token_id", "random_low"):
        with pytest.raises(ConfigError, match=rf"BertModel.{name}: is 103, but the ids of the model are 0 to 63"):
            jax.eval_shape(model(**{name: 103}).init, keys, batch())
    masked = NestedMap(batch(), masked_ids=batch().ids, masked_pos=jnp.ones((4, 8)))
    jax.eval_shape(model(mask_token_id=103).init, keys, masked)
