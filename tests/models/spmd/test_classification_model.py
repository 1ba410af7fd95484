from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from xdpx.models.spmd.base_layer import eval_context
from xdpx.models.spmd.classification_model import BertClassificationModel, ClassificationMLPModel
from xdpx.models.spmd.layers.bert import BertEncoder
from xdpx.models.spmd.layers.embeddings import FullSoftmax
from xdpx.models.spmd.layers.linears import MLPBlock
from xdpx.utils.nested_map import NestedMap


def mlp(classes: int = 8, **fields: Any) -> Any:
    return ClassificationMLPModel(
        network_tpl=MLPBlock.HParams(num_layers=2, input_dims=4, hidden_dims=8, output_dims=8),
        softmax_tpl=FullSoftmax.HParams(input_dims=8, num_classes=classes, has_bias=True),
        **fields,
    )


def batch(classes: int = 8, **more: Any) -> NestedMap:
    inputs = jax.random.normal(jax.random.key(0), (6, 4))
    return NestedMap(inputs=inputs, class_ids=jax.random.randint(jax.random.key(1), (6,), 0, classes), **more)


def outcome(layer: Any, data: NestedMap) -> Any:
    params = meta.unbox(jax.jit(layer.init)(jax.random.key(2), data))["params"]
    return layer.apply({"params": params}, data), layer.apply({"params": params}, data, method="compute_predictions")


def test_the_loss_is_the_mean_cross_entropy_and_accuracy_counts_the_likeliest_class() -> None:
    (metrics, per_example), predictions = outcome(mlp(), batch())
    likely = jnp.log(predictions.probs)[jnp.arange(6), batch().class_ids]
    np.testing.assert_allclose(metrics["total_loss"][0], -likely.mean(), rtol=1e-5)
    np.testing.assert_allclose(per_example.scores, likely, rtol=1e-4)
    assert metrics["accuracy"][0] == pytest.approx(float(per_example.correct.mean()))
    assert metrics["accuracy"][0] <= metrics["accuracy5"][0] <= 1
    assert metrics["num_predictions"][0] == 6


def test_rows_without_weight_do_not_count() -> None:
    layer, data = mlp(), batch()
    params = meta.unbox(jax.jit(layer.init)(jax.random.key(2), data))["params"]
    weighted = NestedMap(data, eval_sample_weights=jnp.array([1.0, 1, 1, 0, 0, 0]))
    first = jax.tree.map(lambda leaf: leaf[:3], data)
    ours, alone = (layer.apply({"params": params}, each)[0]["total_loss"] for each in (weighted, first))
    np.testing.assert_allclose(ours, alone, rtol=1e-6)


def test_labels_are_smoothed_in_training_only() -> None:
    smooth, plain = mlp(label_smoothing_prob=0.2), mlp()
    assert outcome(smooth, batch())[0][0]["total_loss"][0] != outcome(plain, batch())[0][0]["total_loss"][0]
    with eval_context():
        one, other = (outcome(layer, batch())[0][0]["total_loss"][0] for layer in (smooth, plain))
    assert one == other


def test_few_classes_have_no_accuracy_among_five() -> None:
    assert "accuracy5" not in outcome(mlp(3), batch(3))[0][0]


def test_bert_classifies_by_the_first_token_whatever_the_padding_behind_says() -> None:
    encoder = BertEncoder.HParams(vocab_size=32, model_dims=16, hidden_dims=32, num_heads=2, num_layers=1)
    layer = BertClassificationModel(network_tpl=encoder, num_classes=3)
    ids = jax.random.randint(jax.random.key(3), (2, 6), 1, 32)
    paddings = jnp.tile(jnp.arange(6) >= 4, (2, 1)).astype(jnp.float32)
    data = NestedMap(ids=ids, paddings=paddings, class_ids=jnp.array([0, 2]))
    params = meta.unbox(jax.jit(layer.init)(jax.random.key(2), data))["params"]
    assert params["softmax"]["w"].shape == (16, 3)
    assert float(jnp.std(params["network"]["embedding"]["emb_var"])) == pytest.approx(0.02, rel=0.2)
    predict = jax.jit(lambda d: layer.apply({"params": params}, d, method="compute_predictions").logits)
    other = NestedMap(data, ids=ids.at[:, 4:].set(7))
    np.testing.assert_allclose(predict(data), predict(other), atol=1e-6)
    assert not np.allclose(predict(data), predict(NestedMap(data, ids=ids.at[:, 2].add(1))))


def test_a_text_that_is_too_long_for_the_positions_is_refused() -> None:
    encoder = BertEncoder.HParams(vocab_size=32, model_dims=16, hidden_dims=32, num_heads=2, max_positions=4)
    data = NestedMap(ids=jnp.ones((1, 5), jnp.int32), class_ids=jnp.zeros(1, jnp.int32))
    with pytest.raises(ValueError, match="is 4, but rows have 5 tokens"):
        BertClassificationModel(network_tpl=encoder).init(jax.random.key(0), data)
    with pytest.raises(ValueError, match="no pooled vectors. Set it to True"):
        encoder.Instantiate().init(jax.random.key(0), data.ids[:, :4], method="pooled")
