"""Llama and similar models in Hugging Face format: a template from config.json, and a map of the weights.

The map is for unrolled or stacked layers; a linear layer of PyTorch is (out, in), ours (in, out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.exchange.configs import Known, activation, read_config
from xdpx.models.spmd.exchange.layouts import layout_in
from xdpx.models.spmd.exchange.maps import LAYER, Exchange, WeightPair, head_bias, heads_in, heads_out, linear, same
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.embeddings import Embedding, FullSoftmax, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.norms import RMSNorm
from xdpx.models.spmd.layers.positions import RotaryPositionalEmbedding
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer, TransformerFeedForward

KNOWN = Known(
    model_types=("llama", "mistral"),
    needed=("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    refused={
        "sliding_window": (None, "attention to a window only"),
        "pretraining_tp": (1, "products cut into pieces"),
    },
)


def network(config: Mapping[str, Any], *, repeated: bool = True) -> TransformerLm.HParams:
    """Return the template of the network of a config.json.

    Args:
        config: its content.
        repeated: layers in one scan, with stacked weights; False: unrolled.

    Raises:
        ConfigError: it needs something unsupported.
    """
    known = read_config(config, KNOWN)
    attention = Attention.HParams(
        per_dim_scale=False,
        use_bias=bool(known.get("attention_bias", False)),
        dropout_prob=float(known.get("attention_dropout", 0.0)),
        rotary_tpl=RotaryPositionalEmbedding.HParams(max_timescale=_theta(known)),
        num_kv_heads=known.get("num_key_value_heads") or known["num_attention_heads"],
    )
    feed_forward = TransformerFeedForward.HParams(
        use_gated_activation=True,
        has_bias=bool(known.get("mlp_bias", False)),
        activation_tpl=activation(known, "silu"),
    )
    norm = RMSNorm.HParams(epsilon=float(known.get("rms_norm_eps", 1e-6)))
    block = Transformer.HParams(attention_tpl=attention, ff_tpl=feed_forward, norm_tpl=norm)
    tied = bool(known.get("tie_word_embeddings", False))
    stack: Any = StackedTransformerRepeated.HParams(body=block) if repeated else StackedTransformer.HParams()
    if not repeated:
        stack.layer_tpl = block
    return TransformerLm.HParams(
        vocab_size=known["vocab_size"],
        model_dims=known["hidden_size"],
        hidden_dims=known["intermediate_size"],
        num_layers=known["num_hidden_layers"],
        num_heads=known["num_attention_heads"],
        dim_per_head=_head_width(known),
        softmax_tpl=SharedEmbeddingSoftmax.HParams(scale_sqrt_depth=False) if tied else FullSoftmax.HParams(),
        separate_embedding_tpl=None if tied else Embedding.HParams(),
        position_emb_tpl=None,
        stacked_transformer_tpl=stack,
        final_ln_tpl=norm.clone(),
    )


def language_model(config: Mapping[str, Any], *, repeated: bool = True) -> LanguageModel.HParams:
    """Return the template of a language model over `network`; its weights are below `lm`."""
    return LanguageModel.HParams(lm_tpl=network(config, repeated=repeated))


def exchange(config: Mapping[str, Any], template: BaseHParams | None = None, *, prefix: str = "lm/") -> Exchange:
    """Return the map between a tree of our weights and the names of `LlamaForCausalLM`.

    Args:
        config: content of config.json.
        template: of the network (TransformerLm), if its stack differs from that of `network`: unrolled, repeated or
            pipelined.
        prefix: path of the network in our tree; "" for a bare TransformerLm.

    Raises:
        ConfigError: the config needs something unsupported.
    """
    known = read_config(config, KNOWN)
    layout = layout_in(network(config) if template is None else template)
    tied = bool(known.get("tie_word_embeddings", False))
    return Exchange(
        (*_ends(known, prefix, tied=tied), *_block(known, f"{prefix}transformer/{layout.path}")),
        layers=known["num_hidden_layers"],
        stacked=layout.stacked,
        # If the table is tied, some programs write it under both names.
        left_out=("lm_head.", "model.rotary_emb.") if tied else ("model.rotary_emb.",),
    )


def _ends(known: Mapping[str, Any], prefix: str, *, tied: bool) -> list[WeightPair]:
    words, width = known["vocab_size"], known["hidden_size"]
    norm = same(f"{prefix}final_ln/scale", "model.norm.weight", width)
    table = "model.embed_tokens.weight"
    if tied:
        return [same(f"{prefix}softmax/emb_var", table, words, width), norm]
    head = linear(f"{prefix}softmax/w", "lm_head.weight", width, words)
    return [same(f"{prefix}embedding/emb_var", table, words, width), head, norm]


def _block(known: Mapping[str, Any], ours: str) -> list[WeightPair]:
    theirs, width = f"model.layers.{LAYER}", known["hidden_size"]
    norms = (("self_attention", "input_layernorm"), ("ff_layer", "post_attention_layernorm"))
    pairs = [same(f"{ours}/{part}/layer_norm/scale", f"{theirs}.{name}.weight", width) for part, name in norms]
    return (
        pairs
        + _attention(known, f"{ours}/self_attention/attention", f"{theirs}.self_attn")
        + _products(known, f"{ours}/ff_layer", f"{theirs}.mlp")
    )


def _attention(known: Mapping[str, Any], ours: str, theirs: str) -> list[WeightPair]:
    width, head = known["hidden_size"], _head_width(known)
    heads = known["num_attention_heads"]
    kv_heads = known.get("num_key_value_heads") or heads
    pairs = []
    for name, letter, count in (("query", "q", heads), ("key", "k", kv_heads), ("value", "v", kv_heads)):
        pairs.append(heads_in(f"{ours}/{name}", f"{theirs}.{letter}_proj", width, (count, head)))
    pairs.append(heads_out(f"{ours}/post", f"{theirs}.o_proj", (heads, head), width))
    if not known.get("attention_bias", False):
        return pairs
    for name, letter, count in (("query", "q", heads), ("key", "k", kv_heads), ("value", "v", kv_heads)):
        pairs.append(head_bias(f"{ours}/{name}", f"{theirs}.{letter}_proj", (count, head)))
    return [*pairs, same(f"{ours}/post/b", f"{theirs}.o_proj.bias", width)]


def _products(known: Mapping[str, Any], ours: str, theirs: str) -> list[WeightPair]:
    width, hidden = known["hidden_size"], known["intermediate_size"]
    sizes = (
        ("ffn_layer1", "up_proj", width, hidden),
        ("ffn_layer1_gate", "gate_proj", width, hidden),
        ("ffn_layer2", "down_proj", hidden, width),
    )
    pairs = [linear(f"{ours}/{a}/linear/w", f"{theirs}.{b}.weight", x, y) for a, b, x, y in sizes]
    if known.get("mlp_bias", False):
        pairs += [same(f"{ours}/{a}/bias/b", f"{theirs}.{b}.bias", y) for a, b, _, y in sizes]
    return pairs


def _head_width(known: Mapping[str, Any]) -> int:
    return int(known.get("head_dim") or known["hidden_size"] // known["num_attention_heads"])


def _theta(known: Mapping[str, Any]) -> float:
    """Return the base of the rotary frequencies."""
    scaled = known.get("rope_parameters") or known.get("rope_scaling") or {}
    return float(scaled.get("rope_theta") or known.get("rope_theta") or 10_000.0)
