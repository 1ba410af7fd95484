from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.tiers import some
from xdpx.config.faults import ConfigError
from xdpx.models.spmd.decoding.beam import BeamDecoder
from xdpx.models.spmd.decoding.greedy import GreedyDecoder
from xdpx.models.spmd.exchange import hf_llama
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.transformer import StackedTransformer
from xdpx.utils.nested_map import NestedMap

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
IDS = np.random.default_rng(0).integers(3, 64, (2, 6))
LENGTHS = (4, 6)
ENDS = [7, 20]


def llama(**fields: Any) -> LlamaForCausalLM:
    """A tiny model of PyTorch with weights far from zero, so that its choices are clear."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **fields})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3)
    return model


def table_of(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def stacks(config: dict[str, Any]) -> dict[str, Any]:
    """Templates of the network for each way to lay out its blocks."""
    repeated = hf_llama.network(config)
    block = repeated.stacked_transformer_tpl.body
    unrolled = repeated.clone().set(stacked_transformer_tpl=StackedTransformer.HParams(layer_tpl=block))
    stages = Pipelined.HParams(body=block, num_stages=2, num_microbatches=1)
    return {
        "repeated": repeated,
        "unrolled": unrolled,
        "pipelined": repeated.clone().set(stacked_transformer_tpl=stages),
    }


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        ("repeated", {}),
        ("unrolled", {"tie_word_embeddings": True}),
        ("pipelined", {"attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    ],
)
def test_logits_equal_those_of_pytorch_and_weights_go_out_as_they_came(layout: str, fields: dict[str, Any]) -> None:
    model = llama(**fields)
    config, table = model.config.to_dict(), table_of(model)
    template = stacks(config)[layout]
    exchange = hf_llama.exchange(config, template, prefix="")
    tree = exchange.take(table)
    ours = jax.jit(lambda p: template.Instantiate().apply({"params": p}, jnp.asarray(IDS)))(tree)
    np.testing.assert_allclose(ours, model(torch.tensor(IDS)).logits.detach(), atol=1e-5)
    back = exchange.give(tree)
    assert set(table) - set(back) == ({"lm_head.weight"} if fields.get("tie_word_embeddings") else set())
    for name, value in back.items():
        np.testing.assert_array_equal(value, table[name])


def test_our_model_is_drawn_with_the_tree_that_weights_are_read_into() -> None:
    config = LlamaConfig(**SIZES).to_dict()
    drawn = jax.eval_shape(
        hf_llama.language_model(config).Instantiate().init,
        jax.random.key(0),
        NestedMap(ids=jnp.zeros((1, 4), jnp.int32), labels=jnp.zeros((1, 4), jnp.int32), weights=jnp.ones((1, 4))),
    )["params"]
    taken = hf_llama.exchange(config).take(table_of(llama()))
    ours, theirs = (jax.tree.structure(tree) for tree in (jax.tree.map(lambda leaf: 0, taken), _plain(drawn)))
    assert ours == theirs


def _plain(boxed: Any) -> Any:
    return jax.tree.map(lambda box: 0, boxed, is_leaf=lambda node: hasattr(node, "names"))


def ours_decoded(model: LlamaForCausalLM, decoder: Any) -> Any:
    config = model.config.to_dict()
    layer = hf_llama.language_model(config).set(decoder_tpl=decoder).Instantiate()
    params = hf_llama.exchange(config).take(table_of(model))
    data = NestedMap(ids=jnp.asarray(IDS), prefix_lengths=jnp.array(LENGTHS))
    return jax.jit(lambda p, b: layer.apply({"params": p}, b, method="decode"))(params, data)[2]


def theirs_decoded(model: LlamaForCausalLM, row: int, **options: Any) -> torch.Tensor:
    prompt = torch.tensor(IDS[row : row + 1, : LENGTHS[row]])
    quiet = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    return model.generate(prompt, **quiet, **options)


@pytest.mark.parametrize(("least", "eos"), some([(0, ENDS), (5, ENDS), (0, None)], [(0, ENDS), (5, ENDS)]))
def test_greedy_decoding_equals_generate_of_transformers(least: int, eos: list[int] | None) -> None:
    model = llama()
    decoder = GreedyDecoder.HParams(max_decode_steps=8, min_decode_steps=least, eos_id=eos)
    out = ours_decoded(model, decoder)
    for row, length in enumerate(LENGTHS):
        theirs = theirs_decoded(model, row, max_new_tokens=8, min_new_tokens=least, eos_token_id=eos or -1)[0]
        total = int(out.decode_lengths[row, 0])
        assert total - length == len(theirs) - length
        np.testing.assert_array_equal(out.output_ids[row, 0, :total], theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "early"), some([(1.0, False), (0.6, True), (0.0, False)], [(1.0, False), (0.6, True)])
)
def test_beam_search_equals_generate_of_transformers(alpha: float, early: bool) -> None:
    model = llama()
    ends = [7, 20, 33, 41]
    decoder = BeamDecoder.HParams(
        beam_size=3, max_decode_steps=6, length_norm="power", length_norm_alpha=alpha, early_exit=early, eos_id=ends
    )
    out = ours_decoded(model, decoder)
    for row in range(2):
        theirs = theirs_decoded(
            model,
            row,
            max_new_tokens=6,
            num_beams=3,
            num_return_sequences=3,
            length_penalty=alpha,
            early_stopping=early,
            eos_token_id=ends,
            return_dict_in_generate=True,
            output_scores=True,
        )
        np.testing.assert_allclose(out.scores[row], theirs.sequences_scores, atol=1e-4)
        for beam, sequence in enumerate(theirs.sequences.numpy()):
            total = int(out.decode_lengths[row, beam])
            np.testing.assert_array_equal(out.output_ids[row, beam, :total], sequence[:total])
            assert np.all(sequence[total:] == 0)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type: is 'gpt2'"),
        ({"sliding_window": 128}, "attention to a window only"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "stretches positions"),
        ({"vocab_size": None}, "vocab_size: is not given"),
    ],
)
def test_what_would_be_computed_differently_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        hf_llama.network({**LlamaConfig(**SIZES).to_dict(), **fields})
