"""BERT in Hugging Face format: templates from config.json, and maps of the weights of the encoder and its heads.

Names are those of BertModel, BertForMaskedLM and BertForSequenceClassification, which are also those of x-train's
`bert_lm` and `bert_classification`: a model trained on one engine can be loaded on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.bert_model import BertModel, tied_table
from xdpx.models.spmd.classification_model import BertClassificationModel
from xdpx.models.spmd.exchange.configs import Known, activation, read_config
from xdpx.models.spmd.exchange.layouts import layout_in
from xdpx.models.spmd.exchange.maps import LAYER, Exchange, WeightPair, head_bias, heads_in, heads_out, linear, same
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.bert import BertEncoder, MaskedLmHead, bert_block
from xdpx.models.spmd.layers.norms import LayerNorm
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated

KNOWN = Known(
    model_types=("bert",),
    needed=("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    refused={
        "position_embedding_type": ("absolute", "positions by distance"),
        "is_decoder": (False, "a decoder"),
        "add_cross_attention": (False, "attention to a memory"),
    },
)

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Buffers that some files contain in addition to weights."""


def encoder(config: Mapping[str, Any], *, pooler: bool = False) -> BertEncoder.HParams:
    """Return the template of the encoder of a config.json, with its blocks in a scan.

    Args:
        config: its content.
        pooler: whether to add a pooler.

    Raises:
        ConfigError: it needs something unsupported.
    """
    known = read_config(config, KNOWN)
    block = bert_block()
    block.ff_tpl.activation_tpl = activation(known)
    dropout = float(known.get("hidden_dropout_prob", 0.1))
    return BertEncoder.HParams(
        vocab_size=known["vocab_size"],
        model_dims=known["hidden_size"],
        hidden_dims=known["intermediate_size"],
        num_layers=known["num_hidden_layers"],
        num_heads=known["num_attention_heads"],
        max_positions=known.get("max_position_embeddings", 512),
        num_segments=known.get("type_vocab_size", 2),
        dropout_prob=dropout,
        attention_dropout_prob=float(known.get("attention_probs_dropout_prob", 0.1)),
        norm_tpl=_norm(known),
        has_pooler=pooler,
        stacked_transformer_tpl=StackedTransformerRepeated.HParams(body=block, checkpoint_policy="everything"),
        params_init=_init(known),
    )


def masked_lm(config: Mapping[str, Any]) -> BertModel.HParams:
    """Return the template of a masked language model, as BertForMaskedLM.

    Raises:
        ConfigError: it needs something unsupported, such as a table of its own for the logits.
    """
    known = _masked_lm_config(config)
    head = MaskedLmHead.HParams(activation_tpl=activation(known), norm_tpl=_norm(known), params_init=_init(known))
    template = encoder(config).set(embedding_tpl=tied_table())
    return BertModel.HParams(encoder_tpl=template, head_tpl=head, params_init=_init(known))


def _masked_lm_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked content of a config.json whose words have one table, for the input and for the logits."""
    tied = {"tie_word_embeddings": (True, "logits by another table than that of the input")}
    return read_config(config, replace(KNOWN, refused={**KNOWN.refused, **tied}))


def classification(
    config: Mapping[str, Any], num_classes: int, *, output_dropout_prob: float = 0.0
) -> BertClassificationModel.HParams:
    """Return the template of a classifier, as BertForSequenceClassification."""
    return BertClassificationModel.HParams(
        network_tpl=encoder(config, pooler=True),
        num_classes=num_classes,
        output_dropout_prob=output_dropout_prob,
        params_init=_init(read_config(config, KNOWN)),
    )


def encoder_exchange(
    config: Mapping[str, Any],
    template: BaseHParams | None = None,
    *,
    ours: str = "",
    theirs: str = "",
    pooler: bool = False,
) -> Exchange:
    """Return the map between our encoder and the names of BertModel.

    Args:
        config: content of config.json.
        template: of our encoder, if its stack differs from that of `encoder`.
        ours: path of the encoder in our tree, e.g. `network/`.
        theirs: prefix of its names, e.g. `bert.`.
        pooler: whether ours has one; if not, theirs is left out.
    """
    known = read_config(config, KNOWN)
    layout = layout_in(encoder(config) if template is None else template)
    pairs = [*_tables(known, ours, theirs), *_block(known, f"{ours}transformer/{layout.path}", theirs)]
    if pooler:
        pairs += _dense(f"{ours}pooler", f"{theirs}pooler.dense", known["hidden_size"], known["hidden_size"])
    left_out = tuple(f"{theirs}{name}" for name in BUFFERS)
    return Exchange(
        tuple(pairs),
        layers=known["num_hidden_layers"],
        stacked=layout.stacked,
        left_out=left_out if pooler else (*left_out, f"{theirs}pooler."),
    )


def masked_lm_exchange(config: Mapping[str, Any], template: BaseHParams | None = None) -> Exchange:
    """Return the map between our BertModel and the names of BertForMaskedLM.

    Args:
        config: content of config.json.
        template: of our model, if its stack differs from that of `masked_lm`.
    """
    known = _masked_lm_config(config)
    below = None if template is None else template.encoder_tpl
    inner = encoder_exchange(config, below, ours="encoder/", theirs="bert.")
    head = "cls.predictions"
    pairs = [
        same("encoder/embedding/b", f"{head}.bias", known["vocab_size"]),
        *_dense("head/dense", f"{head}.transform.dense", known["hidden_size"], known["hidden_size"]),
        *_layer_norm("head/layer_norm", f"{head}.transform.LayerNorm", known["hidden_size"]),
    ]
    # The table and its bias have a second name there, and there may be a next-sentence head.
    left_out = (*inner.left_out, f"{head}.decoder.", "cls.seq_relationship.")
    return Exchange((*inner.pairs, *pairs), layers=inner.layers, stacked=inner.stacked, left_out=left_out)


def classification_exchange(
    config: Mapping[str, Any], num_classes: int, template: BaseHParams | None = None
) -> Exchange:
    """Return the map between our BertClassificationModel and the names of BertForSequenceClassification.

    Args:
        config: content of config.json.
        num_classes: number of classes.
        template: of our model, if its stack differs from that of `classification`.
    """
    below = None if template is None else template.network_tpl
    inner = encoder_exchange(config, below, ours="network/", theirs="bert.", pooler=True)
    pairs = [
        linear("softmax/w", "classifier.weight", config["hidden_size"], num_classes),
        same("softmax/b", "classifier.bias", num_classes),
    ]
    return Exchange((*inner.pairs, *pairs), layers=inner.layers, stacked=inner.stacked, left_out=inner.left_out)


def _tables(known: Mapping[str, Any], ours: str, theirs: str) -> list[WeightPair]:
    width, at = known["hidden_size"], f"{theirs}embeddings"
    positions = known.get("max_position_embeddings", 512)
    pairs = [
        same(f"{ours}embedding/emb_var", f"{at}.word_embeddings.weight", known["vocab_size"], width),
        same(f"{ours}position_emb/table/emb_var", f"{at}.position_embeddings.weight", positions, width),
    ]
    segments = known.get("type_vocab_size", 2)
    if segments:
        pairs.append(same(f"{ours}segment_emb/emb_var", f"{at}.token_type_embeddings.weight", segments, width))
    return pairs + _layer_norm(f"{ours}layer_norm", f"{at}.LayerNorm", width)


def _block(known: Mapping[str, Any], ours: str, prefix: str) -> list[WeightPair]:
    theirs, width, hidden = f"{prefix}encoder.layer.{LAYER}", known["hidden_size"], known["intermediate_size"]
    heads = (known["num_attention_heads"], width // known["num_attention_heads"])
    attention, products = f"{ours}/self_attention", f"{ours}/ff_layer"
    pairs = []
    for name in ("query", "key", "value"):
        there = f"{theirs}.attention.self.{name}"
        pairs += [heads_in(f"{attention}/attention/{name}", there, width, heads)]
        pairs += [head_bias(f"{attention}/attention/{name}", there, heads)]
    out = f"{theirs}.attention.output"
    return [
        *pairs,
        heads_out(f"{attention}/attention/post", f"{out}.dense", heads, width),
        same(f"{attention}/attention/post/b", f"{out}.dense.bias", width),
        *_layer_norm(f"{attention}/layer_norm", f"{out}.LayerNorm", width),
        *_dense(f"{products}/ffn_layer1", f"{theirs}.intermediate.dense", width, hidden),
        *_dense(f"{products}/ffn_layer2", f"{theirs}.output.dense", hidden, width),
        *_layer_norm(f"{products}/layer_norm", f"{theirs}.output.LayerNorm", width),
    ]


def _dense(ours: str, theirs: str, features_in: int, features_out: int) -> list[WeightPair]:
    return [
        linear(f"{ours}/linear/w", f"{theirs}.weight", features_in, features_out),
        same(f"{ours}/bias/b", f"{theirs}.bias", features_out),
    ]


def _layer_norm(ours: str, theirs: str, width: int) -> list[WeightPair]:
    return [same(f"{ours}/scale", f"{theirs}.weight", width), same(f"{ours}/bias", f"{theirs}.bias", width)]


def _norm(known: Mapping[str, Any]) -> LayerNorm.HParams:
    return LayerNorm.HParams(direct_scale=True, epsilon=float(known.get("layer_norm_eps", 1e-12)))


def _init(known: Mapping[str, Any]) -> WeightInit:
    return WeightInit.Gaussian(float(known.get("initializer_range", 0.02)))
