from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from tests.tiers import some
from xdpx.models.spmd.decoding.beam import BeamDecoder
from xdpx.models.spmd.decoding.driving import next_logits, prompts_of, with_padding_last
from xdpx.models.spmd.decoding.greedy import GreedyDecoder
from xdpx.models.spmd.decoding.sampling import SampleDecoder
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.positions import TrainablePositionalEmbedding
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer
from xdpx.utils.nested_map import NestedMap

STACKS: dict[str, Any] = {
    "unrolled": StackedTransformer.HParams(num_layers=2),
    "repeated": StackedTransformerRepeated.HParams(x_times=2),
    "pipelined": Pipelined.HParams(body=Transformer.HParams(), num_stages=2, num_microbatches=1),
}
LENGTHS = (3, 5)


def model(stack: str = "repeated", **fields: Any) -> Any:
    network = TransformerLm.HParams(
        vocab_size=32, model_dims=16, hidden_dims=32, num_heads=2, num_layers=2, stacked_transformer_tpl=STACKS[stack]
    )
    return LanguageModel(lm_tpl=network, **fields)


def batch() -> NestedMap:
    ids = jax.random.randint(jax.random.key(0), (2, 5), 2, 32)
    paddings = jnp.arange(5) >= jnp.array(LENGTHS)[:, None]
    return NestedMap(ids=ids, labels=ids, weights=1.0 - paddings, paddings=paddings.astype(jnp.float32))


@cache
def params_of(stack: str = "repeated") -> Any:
    """Weights of a network, which do not depend on what decodes with it."""
    return meta.unbox(jax.jit(model(stack).init)(jax.random.key(1), batch()))["params"]


def decoded(layer: Any, params: Any, data: NestedMap) -> Any:
    return jax.jit(lambda p, b: layer.apply({"params": p}, b, method="decode", rngs={"random": jax.random.key(5)}))(
        params, data
    )[2]


@pytest.mark.parametrize("stack", some(STACKS, ["repeated", "pipelined"]))
def test_decoding_with_a_cache_equals_computing_every_row_again_for_each_token(stack: str) -> None:
    layer = model(stack, decoder_tpl=GreedyDecoder.HParams(max_decode_steps=4, eos_id=None))
    params = params_of(stack)
    out = decoded(layer, params, batch())
    again = jax.jit(
        lambda ids: layer.apply({"params": params}, NestedMap(ids=ids), method="compute_predictions").logits
    )
    for row, length in enumerate(LENGTHS):
        ids = np.zeros((1, 9), np.int32)
        ids[0, :length] = batch().ids[row, :length]
        for place in range(length, length + 4):
            logits = jax.nn.log_softmax(again(ids)[0, place - 1])
            ids[0, place] = int(logits.argmax())
            np.testing.assert_allclose(out.logprobs[row, 0, place], logits.max(), atol=2e-5)
        np.testing.assert_array_equal(out.output_ids[row, 0], ids[0])


def test_samples_at_temperature_zero_and_one_beam_are_greedy() -> None:
    params = params_of()
    limits: dict[str, Any] = {"max_decode_steps": 4, "eos_id": None}
    greedy = decoded(model(decoder_tpl=GreedyDecoder.HParams(**limits)), params, batch())
    cold = SampleDecoder.HParams(num_samples=2, temperature=0.0, **limits)
    narrow = BeamDecoder.HParams(beam_size=1, length_norm_alpha=0.0, **limits)
    for template in (cold, narrow):
        out = decoded(model(decoder_tpl=template), params, batch())
        np.testing.assert_array_equal(out.output_ids[:, 0], greedy.output_ids[:, 0])


def test_samples_differ_and_come_best_first() -> None:
    template = SampleDecoder.HParams(num_samples=4, temperature=1.5, k=0, max_decode_steps=4, eos_id=None)
    out = decoded(model(decoder_tpl=template), params_of(), batch())
    assert len(np.unique(out.output_ids[0], axis=0)) > 1
    assert np.all(np.diff(out.scores, axis=1) <= 0)


def test_rows_are_written_as_the_golden_has_them_and_padding_examples_are_not() -> None:
    layer = model(decoder_tpl=GreedyDecoder.HParams(max_decode_steps=2, eos_id=None))
    data = batch()
    data["eval_sample_weights"] = jnp.array([1.0, 0.0])
    out = jax.tree.map(np.asarray, decoded(layer, params_of(), data))
    metrics, rows = layer.process_decode_out(None, out)
    golden = json.loads(Path(__file__).with_name("decoder_out_golden.jsonl").read_text().splitlines()[0])
    [(key, row)] = rows
    assert row.keys() == golden.keys() | {"row_in_batch"}
    assert key == row["prefix"] == " ".join(str(each) for each in data.ids[0, :3])
    assert row["decode_length"] == row["prefix_length"] + 2 == 5
    assert row["decoded_ids"] == row["ids"][3:5]
    assert row["logprobs"][:3] == [1.0, 1.0, 1.0]
    assert row["logprobs"][3] < 0
    assert metrics == {"num_decoded": (1.0, 1.0)}
    assert json.loads(json.dumps(row)) == row


def test_a_prompt_ends_where_the_batch_says() -> None:
    data = batch()
    assert prompts_of(data).lengths.tolist() == [3, 5]
    data["inputs_indicator"] = jnp.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
    assert prompts_of(data).lengths.tolist() == [2, 4]
    data["prefix_lengths"] = jnp.array([1, 0])
    assert prompts_of(data).lengths.tolist() == [1, 1]
    data["prefix_lengths"] = jnp.array([5, 5])  # the first row has three tokens, and padding
    assert prompts_of(data).lengths.tolist() == [3, 5]


def test_prompts_may_be_padded_anywhere() -> None:
    ids, paddings = jnp.array([[0, 7, 0, 8, 9], [5, 6, 0, 0, 0]]), jnp.array([[1, 0, 1, 0, 0], [0, 0, 1, 1, 1.0]])
    moved = with_padding_last(NestedMap(ids=ids, labels=ids + 1, paddings=paddings, eval_sample_weights=jnp.ones(2)))
    assert moved["ids"][:, :3].tolist() == [[7, 8, 9], [5, 6, 0]]
    assert moved["labels"][0, :3].tolist() == [8, 9, 10]
    assert prompts_of(moved).lengths.tolist() == [3, 2]


def test_padding_of_prompts_is_told_to_the_network_so_that_it_fills_no_experts() -> None:
    def hidden(ids: jax.Array, *, segment_pos: jax.Array, paddings: jax.Array) -> jax.Array:
        return jnp.stack([paddings, segment_pos], axis=-1)

    network: Any = SimpleNamespace(hidden=hidden, softmax=SimpleNamespace(get_logits=lambda picked: picked))
    places = jnp.broadcast_to(jnp.arange(4), (2, 4))
    assert next_logits(network, places, places, jnp.array([1, 3])).tolist() == [[0, 1], [0, 3]]
    seen = []
    network.hidden = lambda ids, *, segment_pos, paddings: seen.append(paddings) or jnp.zeros((2, 4, 1))
    next_logits(network, places, places, jnp.array([1, 3]))
    assert seen[0].tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]


def test_what_cannot_be_decoded_is_refused_in_a_sentence() -> None:
    seeing_all = model()
    seeing_all = LanguageModel(lm_tpl=seeing_all.lm_tpl.clone().set(model_type="bidirectional"))
    with pytest.raises(ValueError, match="Only 'causal' can decode"):
        decoded(seeing_all, params_of(), batch())
    positions = TrainablePositionalEmbedding.HParams(max_seq_length=10)
    short = LanguageModel(lm_tpl=model().lm_tpl.clone().set(position_emb_tpl=positions))
    with pytest.raises(ValueError, match="need 37 positions, but the model has 10"):
        decoded(short, params_of(), batch())


@pytest.mark.parametrize(
    ("template", "fields", "sentence"),
    [
        (GreedyDecoder, {"min_decode_steps": 9, "max_decode_steps": 3}, "0 <= min_decode_steps <= max_decode_steps"),
        (SampleDecoder, {"p": 0.0}, "more than 0, at most 1"),
        (SampleDecoder, {"temperature": -1.0}, "0 or more"),
        (BeamDecoder, {"beam_size": 0}, "1 or more"),
        (BeamDecoder, {"tokens_per_beam": 1}, "all of them could end at once"),
    ],
)
def test_a_decoder_that_contradicts_itself_is_refused_in_a_sentence(
    template: Any, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        template(**fields)
