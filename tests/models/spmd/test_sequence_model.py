from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import meta

from tests.tiers import nightly
from xdpx.models.spmd.decoding.beam import BeamDecoder
from xdpx.models.spmd.decoding.greedy import GreedyDecoder
from xdpx.models.spmd.layers.encoder_decoder import TransformerEncoderDecoder
from xdpx.models.spmd.sequence_model import SequenceModel
from xdpx.utils.nested_map import NestedMap

LENGTH, END = 4, 1

pytestmark = pytest.mark.slow


def model(**fields: Any) -> Any:
    network = TransformerEncoderDecoder.HParams(vocab_size=16, model_dims=16, hidden_dims=32, num_heads=2)
    limits = GreedyDecoder.HParams(max_decode_steps=LENGTH + 1, eos_id=END)
    return SequenceModel(**{"model_tpl": network, "decoder_tpl": limits, **fields})


def reversing(seed: int, rows: int = 32) -> NestedMap:
    """Sources of 2 to 4 tokens, whose target is the source from its end to its beginning, and an end of sequence."""
    draw = np.random.default_rng(seed)
    src, labels = np.zeros((rows, LENGTH), np.int32), np.zeros((rows, LENGTH + 1), np.int32)
    for row, length in enumerate(draw.integers(2, LENGTH + 1, rows)):
        src[row, :length] = draw.integers(2, 16, length)
        labels[row, : length + 1] = [*src[row, :length][::-1], END]
    ids = np.pad(labels, ((0, 0), (1, 0)))[:, :-1]
    paddings = (labels == 0).astype(np.float32)
    tgt = NestedMap(ids=ids, labels=labels, weights=1 - paddings, paddings=paddings)
    return jax.tree.map(jnp.asarray, NestedMap(src=NestedMap(ids=src, paddings=(src == 0).astype(np.float32)), tgt=tgt))


def xent(params: Any, batch: NestedMap, layer: Any = None) -> tuple[jax.Array, jax.Array]:
    return jax.jit((layer or model()).apply)({"params": params}, batch)[0]["avg_xent"]


@pytest.fixture(scope="module")
def drawn() -> Any:
    """Weights far from zero, so that what a model sees makes a difference."""
    shapes = meta.unbox(jax.eval_shape(model().init, jax.random.key(0), reversing(0)))["params"]
    dice = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: jnp.asarray(dice.normal(0, 0.3, leaf.shape), leaf.dtype), shapes)


@pytest.fixture(scope="module")
def trained() -> Any:
    """Weights of a model that has learnt to reverse."""
    layer, optimizer = model(), optax.adam(5e-3)
    params = meta.unbox(jax.jit(layer.init)(jax.random.key(0), reversing(0)))["params"]

    def step(carry: Any, batch: Any) -> Any:
        params, state = carry
        loss, gradients = jax.value_and_grad(lambda p: layer.apply({"params": p}, batch)[0]["total_loss"][0])(params)
        updates, state = optimizer.update(gradients, state)
        return (optax.apply_updates(params, updates), state), loss

    batches = jax.tree.map(lambda *each: np.stack(each), *(reversing(seed, 48) for seed in range(250)))
    (params, _), losses = jax.jit(lambda carry: jax.lax.scan(step, carry, batches))((params, optimizer.init(params)))
    assert losses[-1] < 0.3 * losses[0]
    return params


@nightly("test_log_probabilities_of_decoding_are_those_of_the_whole_pass")
def test_a_model_that_learnt_to_reverse_decodes_reversed_texts(trained: Any) -> None:
    data = reversing(12345)
    layer = model()
    out = jax.tree.map(np.asarray, jax.jit(lambda b: layer.apply({"params": trained}, b, method="decode"))(data)[2])
    rows = [row for _, row in layer.process_decode_out(None, out)[1]]
    right = [row["decoded_substr"] == row["original"] for row in rows]
    assert np.mean(right) > 0.4
    assert rows[0]["prefix_length"] == 1


def test_log_probabilities_of_decoding_are_those_of_the_whole_pass(drawn: Any) -> None:
    data = reversing(7, 4)
    predict = jax.jit(lambda b: model().apply({"params": drawn}, b, method="compute_predictions").logits)
    for decoder in (GreedyDecoder, BeamDecoder):
        layer = model(decoder_tpl=decoder.HParams(max_decode_steps=LENGTH, eos_id=None))
        out = jax.jit(lambda b, layer=layer: layer.apply({"params": drawn}, b, method="decode"))(data)[2]
        ids = out.output_ids[:, 0]
        whole = NestedMap(src=data.src, tgt=NestedMap(ids=ids[:, :-1]))
        picked = jnp.take_along_axis(jax.nn.log_softmax(predict(whole)), ids[:, 1:, None], axis=-1)[..., 0]
        np.testing.assert_allclose(out.logprobs[:, 0, 1:], picked, atol=1e-4)


def test_padding_of_the_source_and_rows_without_weight_change_nothing(drawn: Any) -> None:
    data = reversing(3, 4)
    wide = NestedMap(data)
    wide["src"] = NestedMap(
        {k: jnp.pad(v, ((0, 0), (0, 2)), constant_values=k == "paddings") for k, v in data.src.items()}
    )
    one, other = (xent(drawn, each)[0] for each in (data, wide))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    halved = NestedMap(data, eval_sample_weights=jnp.array([1.0, 1.0, 0.0, 0.0]))
    first = jax.tree.map(lambda leaf: leaf[:2], data)
    one, other = (xent(drawn, each) for each in (halved, first))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_packed_texts_do_not_see_each_other(drawn: Any) -> None:
    packed = model(model_tpl=model().model_tpl.clone().set(packed_input=True))
    data = reversing(5, 2)

    def joined(text: NestedMap) -> NestedMap:
        row = {name: jnp.concatenate([leaf[0], leaf[1]])[None] for name, leaf in text.items()}
        length = text.ids.shape[1]
        ids = jnp.repeat(jnp.array([1, 2]), length)[None]
        return NestedMap(row, segment_ids=ids, segment_pos=jnp.tile(jnp.arange(length), 2)[None])

    together = NestedMap(src=joined(data.src), tgt=joined(data.tgt))
    np.testing.assert_allclose(xent(drawn, together, packed), xent(drawn, data), rtol=1e-4)
