from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.models.spmd.base_layer import eval_context, opened
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.activations import SiLU
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.embeddings import Embedding, FullSoftmax, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.norms import RMSNorm
from xdpx.models.spmd.layers.positions import RotaryPositionalEmbedding
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer, TransformerFeedForward
from xdpx.utils.nested_map import NestedMap

KEY = jax.random.key(0)
GOLDENS = Path(__file__).parent / "goldens"
IDS = np.random.default_rng(0).integers(1, 32, (2, 8)).astype(np.int32)


def _lm(**fields: Any) -> TransformerLm.HParams:
    sizes = {"vocab_size": 32, "model_dims": 16, "hidden_dims": 32, "num_layers": 2, "num_heads": 2}
    return TransformerLm.HParams(**{**sizes, **fields})


def _llama() -> TransformerLm.HParams:
    """The other kind of block: gated, grouped, rotary, RMS norms, an own softmax, as one scan."""
    attention = Attention.HParams(num_kv_heads=1, per_dim_scale=False, rotary_tpl=RotaryPositionalEmbedding.HParams())
    part = TransformerFeedForward.HParams(use_gated_activation=True, has_bias=False, activation_tpl=SiLU.HParams())
    block = Transformer.HParams(norm_tpl=RMSNorm.HParams(), attention_tpl=attention, ff_tpl=part)
    return _lm(
        softmax_tpl=FullSoftmax.HParams(),
        separate_embedding_tpl=Embedding.HParams(),
        position_emb_tpl=None,
        stacked_transformer_tpl=StackedTransformerRepeated.HParams(body=block),
        final_ln_tpl=RMSNorm.HParams(),
    )


def _batch(ids: np.ndarray = IDS, **fields: Any) -> NestedMap:
    rows, length = ids.shape
    whole = {
        "ids": ids,
        "labels": np.roll(ids, -1, axis=1),
        "weights": np.ones((rows, length), np.float32),
        "paddings": np.zeros((rows, length), np.float32),
        "segment_ids": np.ones((rows, length), np.int32),
        "segment_pos": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "eval_sample_weights": np.ones((rows,), np.float32),
    }
    return NestedMap({**whole, **fields})


@cache
def _built(kind: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Return (model, params, compiled function of params and batch) of one kind of model."""
    templates = {
        "causal": lambda: _lm(num_layers=1),
        "packed": lambda: _lm(packed_input=True, num_layers=1),
        "bidirectional": lambda: _lm(model_type="bidirectional", num_layers=1),
        "prefix": lambda: _lm(model_type="prefix", num_layers=1),
        "llama": lambda: _llama().set(packed_input=True),
    }
    model = LanguageModel.HParams(lm_tpl=templates[kind](), return_logits=True).Instantiate()
    variables = jax.jit(model.init)(KEY, _batch(inputs_indicator=np.ones_like(IDS)))
    params = jax.tree.map(opened, variables["params"], is_leaf=lambda leaf: hasattr(leaf, "names"))
    return model, params, jax.jit(lambda params, batch: model.apply({"params": params}, batch))


def _logits(kind: str, batch: NestedMap) -> np.ndarray:
    _, params, run = _built(kind)
    return np.asarray(run(params, batch)[1].logits)


def _changed(columns: slice) -> np.ndarray:
    ids = IDS.copy()
    ids[:, columns] = (ids[:, columns] + 7) % 32
    return ids


def test_a_later_token_changes_nothing_before_it():
    before, after = _logits("causal", _batch()), _logits("causal", _batch(_changed(slice(5, None))))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert not np.allclose(before[:, 5:], after[:, 5:])


def test_a_bidirectional_model_sees_later_tokens():
    before, after = _logits("bidirectional", _batch()), _logits("bidirectional", _batch(_changed(slice(5, None))))
    assert not np.allclose(before[:, 0], after[:, 0])


@pytest.mark.parametrize("kind", ["packed", "llama"])
def test_a_token_of_another_segment_changes_nothing(kind: str):
    segments = np.tile(np.array([1] * 3 + [2] * 5, np.int32), (2, 1))
    before = _logits(kind, _batch(segment_ids=segments))
    after = _logits(kind, _batch(_changed(slice(0, 3)), segment_ids=segments))
    np.testing.assert_array_equal(before[:, 3:], after[:, 3:])
    assert not np.allclose(before[:, :3], after[:, :3])


def test_a_padded_token_changes_nothing():
    paddings = np.tile(np.array([0] * 6 + [1] * 2, np.float32), (2, 1))
    before = _logits("bidirectional", _batch(paddings=paddings))
    after = _logits("bidirectional", _batch(_changed(slice(6, None)), paddings=paddings))
    np.testing.assert_array_equal(before[:, :6], after[:, :6])


def test_a_prefix_is_seen_by_itself_and_what_follows_is_not():
    prefix = np.tile(np.array([1] * 4 + [0] * 4, np.int32), (2, 1))
    base = _logits("prefix", _batch(inputs_indicator=prefix))
    within = _logits("prefix", _batch(_changed(slice(3, 4)), inputs_indicator=prefix))
    behind = _logits("prefix", _batch(_changed(slice(6, None)), inputs_indicator=prefix))
    assert not np.allclose(base[:, 0], within[:, 0])
    np.testing.assert_array_equal(base[:, :6], behind[:, :6])


def test_a_prefix_model_without_a_prefix_is_refused():
    with pytest.raises(ValueError, match="inputs_indicator"):
        jax.eval_shape(TransformerLm.HParams.build(_lm(model_type="prefix")).init, KEY, IDS)


@pytest.mark.parametrize("kind", ["packed", "llama"])
def test_the_loss_of_packed_texts_is_that_of_the_same_texts_in_rows_of_their_own(kind: str):
    lengths = (3, 5)
    rows = np.zeros((2, 8), np.int32)
    weights = np.zeros((2, 8), np.float32)
    for row, length in enumerate(lengths):
        rows[row, :length], weights[row, :length] = IDS[row, :length], 1
    labels = np.roll(rows, -1, axis=1)
    segments = (weights > 0).astype(np.int32)
    apart = _batch(rows, labels=labels, weights=weights, segment_ids=segments, paddings=1 - weights)

    def packed(each: np.ndarray) -> np.ndarray:
        return np.concatenate([each[row, :length] for row, length in enumerate(lengths)])[None].repeat(2, axis=0)

    places = np.concatenate([np.arange(length) for length in lengths])[None].repeat(2, axis=0).astype(np.int32)
    numbers = np.array([[1] * 3 + [2] * 5] * 2, np.int32)
    once = np.array([[1.0] * 8, [0.0] * 8], np.float32)
    together = _batch(packed(rows), labels=packed(labels), weights=once, segment_ids=numbers, segment_pos=places)
    _, params, run = _built(kind)
    one, two = run(params, apart)[0], run(params, together)[0]
    np.testing.assert_allclose(one["total_loss"][0], two["total_loss"][0], rtol=1e-6)
    assert one["num_predictions"][0] == two["num_predictions"][0] == 8


def test_metrics_are_those_of_the_closed_form():
    weights = np.random.default_rng(1).integers(0, 2, (2, 8)).astype(np.float32)
    batch = _batch(weights=weights)
    _, params, run = _built("causal")
    metrics, rows = run(params, batch)
    log_probs = np.asarray(jax.nn.log_softmax(rows.logits))
    xent = -np.take_along_axis(log_probs, batch.labels[..., None], axis=-1)[..., 0]
    correct = log_probs.argmax(-1) == batch.labels
    count = weights.sum()
    for name in ("total_loss", "avg_xent", "log_pplx"):
        np.testing.assert_allclose(metrics[name], ((xent * weights).sum() / count, count), rtol=1e-5)
    fraction = metrics["fraction_of_correct_next_step_preds"]
    np.testing.assert_allclose(fraction, ((correct * weights).sum() / count, count), rtol=1e-6)
    assert metrics["num_predictions"] == (count, 1.0)
    np.testing.assert_allclose(rows.scores, -(xent * weights).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(rows.avg_xent, (xent * weights).sum(-1) / weights.sum(-1), rtol=1e-5)


def test_rows_that_fill_up_a_batch_count_nothing():
    _, params, run = _built("causal")
    one = run(params, _batch(eval_sample_weights=np.array([1.0, 0.0], np.float32)))[0]
    weights = np.array([[1.0] * 8, [0.0] * 8], np.float32)
    two = run(params, _batch(weights=weights))[0]
    assert one["total_loss"] == two["total_loss"]


def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_nan():
    _, params, run = _built("causal")
    metrics = run(params, _batch(weights=np.zeros((2, 8), np.float32)))[0]
    assert (float(metrics["total_loss"][0]), float(metrics["total_loss"][1])) == (0.0, 0.0)


def test_smoothing_and_z_loss_are_added_in_training_only():
    template = LanguageModel.HParams(lm_tpl=_lm(num_layers=1), label_smoothing_prob=0.1, z_loss_weight=0.01)
    model = template.Instantiate()
    _, params, run = _built("causal")
    logits = run(params, _batch())[1].logits
    log_probs = jax.nn.log_softmax(logits)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    target = 0.9 * jax.nn.one_hot(np.roll(IDS, -1, axis=1), 32) + 0.1 / 32
    expected = jnp.mean(-jnp.sum(target * log_probs, axis=-1) + 0.01 * log_z**2)
    metrics = model.apply({"params": params}, NestedMap(logits=logits), _batch(), method="compute_loss")[0]
    np.testing.assert_allclose(metrics["total_loss"][0], expected, rtol=1e-5)
    assert metrics["avg_xent"][0] < metrics["total_loss"][0]
    with eval_context():
        metrics = model.apply({"params": params}, NestedMap(logits=logits), _batch(), method="compute_loss")[0]
    assert metrics["avg_xent"][0] == metrics["total_loss"][0]


def test_a_tied_table_is_stored_once():
    _, params, _ = _built("causal")
    tables = [leaf for leaf in jax.tree.leaves(params) if 32 in leaf.shape and 16 in leaf.shape and leaf.ndim == 2]
    assert [leaf.shape for leaf in tables if leaf.shape == (32, 16)].count((32, 16)) == 1 + 1  # and ffn_layer2
    assert set(params["lm"]) == {"softmax", "transformer", "final_ln"}


def _text(template: Any) -> str:
    """Return one line per weight: path, shape, axes."""
    shapes = jax.eval_shape(template.Instantiate().init, KEY, _batch())["params"]
    leaves = jax.tree_util.tree_leaves_with_path(shapes, is_leaf=lambda leaf: hasattr(leaf, "names"))
    return "".join(
        f"{jax.tree_util.keystr(path, simple=True, separator='/')} {leaf.value.shape} {leaf.names}\n"
        for path, leaf in leaves
    )


@pytest.mark.parametrize("name", ["lm", "llama"])
def test_names_shapes_and_axes_of_weights_are_those_of_the_golden(name: str):
    template = LanguageModel.HParams(lm_tpl=_lm() if name == "lm" else _llama())
    assert _text(template) == (GOLDENS / f"{name}_weights.txt").read_text(encoding="utf-8")


def test_a_model_of_22_billion_weights_has_shapes_without_memory():
    template = TransformerLm.HParams(
        vocab_size=32768,
        model_dims=6144,
        hidden_dims=24576,
        num_layers=48,
        num_heads=24,
        dim_per_head=256,
        stacked_transformer_tpl=StackedTransformerRepeated.HParams(),
        softmax_tpl=SharedEmbeddingSoftmax.HParams(soft_cap_logits=30.0),
    )
    model = LanguageModel.HParams(lm_tpl=template, fprop_dtype=jnp.bfloat16).Instantiate()
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((64, *(1024,) * (leaf.ndim - 1)), leaf.dtype), _batch())
    shapes = jax.eval_shape(model.init, KEY, batch)["params"]
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == pytest.approx(21.94e9, rel=1e-3)


def test_a_softmax_that_embeds_nothing_needs_an_embedding_beside_it():
    with pytest.raises(ValueError, match="separate_embedding_tpl: is None"):
        jax.eval_shape(_lm(softmax_tpl=FullSoftmax.HParams()).Instantiate().init, KEY, IDS)


def test_the_initialisation_of_the_root_reaches_every_product():
    template = LanguageModel.HParams(lm_tpl=_lm(), params_init=WeightInit.Constant(0.006))
    params = jax.jit(template.Instantiate().init)(KEY, _batch())["params"]["lm"]
    assert jnp.all(opened(params["softmax"]["emb_var"]) == jnp.float32(0.006))
    block = params["transformer"]["x_layers_0"]
    assert jnp.all(opened(block["self_attention"]["attention"]["query"]["w"]) == jnp.float32(0.006))
    assert jnp.all(opened(block["ff_layer"]["ffn_layer1"]["bias"]["b"]) == 0)


def test_half_precision_reaches_every_layer_and_logits_stay_whole():
    model = LanguageModel.HParams(lm_tpl=_lm(), fprop_dtype=jnp.bfloat16, return_logits=True).Instantiate()
    _, rows = jax.eval_shape(lambda key: model.init_with_output(key, _batch())[0], KEY)
    assert rows.logits.dtype == jnp.float32
    bound_dtype = jax.eval_shape(
        lambda key: model.init_with_output(key, _batch(), method=lambda m, b: m.lm.hidden(b.ids))[0], KEY
    )
    assert bound_dtype.dtype == jnp.bfloat16


def test_the_template_of_a_whole_model_prints_and_survives_fiddle():
    from xdpx.config.hparams import from_fiddle, to_fiddle

    template = LanguageModel.HParams(lm_tpl=_llama())
    assert from_fiddle(to_fiddle(template)) == template
    assert "lm_tpl.stacked_transformer_tpl.body.attention_tpl.num_kv_heads : 1" in template.to_text()


def test_layers_that_cannot_be_counted_out_are_refused():
    stack = StackedTransformerRepeated.HParams(body=StackedTransformer.HParams(num_layers=2))
    with pytest.raises(ValueError, match="Use a multiple of 2"):
        jax.eval_shape(_lm(num_layers=3, stacked_transformer_tpl=stack).Instantiate().init, KEY, IDS)


def test_loss_and_gradients_on_a_mesh_of_eight_are_those_of_one_device():
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    from xdpx.models.spmd.sharding import TRANSFORMER_RULES, placed, resolve

    model, params, _ = _built("packed")
    mesh = jax.make_mesh((2, 2, 2), ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)
    shapes = jax.eval_shape(model.init, KEY, _batch())["params"]

    def place(box: Any) -> NamedSharding:
        return NamedSharding(mesh, resolve(box.names, box.value.shape, TRANSFORMER_RULES, mesh.shape))

    where = jax.tree.map(place, shapes, is_leaf=lambda leaf: hasattr(leaf, "names"))
    batch = _batch(np.concatenate([IDS] * 2))
    rows = jax.device_put(batch, NamedSharding(mesh, PartitionSpec(("replica", "data"))))

    def loss(params: Any, batch: NestedMap) -> Any:
        return model.apply({"params": params}, batch)[0]["total_loss"][0]

    with placed(mesh):
        value, grads = jax.jit(jax.value_and_grad(loss), out_shardings=(None, where))(
            jax.device_put(params, where), rows
        )
    plain_value, plain_grads = jax.jit(jax.value_and_grad(loss))(params, batch)
    np.testing.assert_allclose(value, plain_value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), grads, plain_grads)
