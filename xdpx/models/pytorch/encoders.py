"""Differences between encoders of transformers: names of sizes, masks, pooling, layer numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from xdpx.config.faults import did_you_mean, refusal
from xdpx.logger import log

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "attention_probs_dropout_prob": ("attention_dropout",),
    "hidden_act": ("hidden_activation", "activation"),
    "hidden_dropout_prob": ("mlp_dropout", "dropout"),
}
"""Other names of bert_config keys in some architectures."""

WHOLE_MASKS = frozenset({"albert", "bert", "camembert", "electra", "roberta", "xlm-roberta"})
"""Architectures that accept a mask (B, 1, T, T); others derive theirs, e.g. for windows, from one (B, T)."""

COUNT_FROM_PADDING = frozenset({"camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "xmod"})
"""Architectures that number positions from pad_token_id + 1, as RoBERTa and all that have it in their name do."""

READ_PADDING = frozenset({"canine", "convbert", "fnet", "nystromformer", "reformer", "yoso"})
"""Architectures that mix padding into real tokens whatever the mask is: by convolutions, Fourier transforms, hashes."""

EMBEDDING = re.compile(r"bert\.\w*embed")
"""Tables outside of the module `embeddings`, such as `bert.embed_tokens`, and their projections."""

LAYER = re.compile(r"\.(?:layer|layers)\.(\d+)\.")


def new_config(model_type: str, sizes: Mapping[str, Any]) -> PretrainedConfig:
    """Return the config of an architecture with these sizes.

    Args:
        model_type: its name in transformers.
        sizes: the keys of the group bert_config.

    Raises:
        ConfigError: transformers has no such architecture.
    """
    try:
        config: PretrainedConfig = AutoConfig.for_model(model_type)
    except ValueError as error:
        known = [*WHOLE_MASKS, "deberta", "deberta-v2", "modernbert", "distilbert"]
        remedy = did_you_mean(model_type, known, "Use bert, roberta, albert, electra, deberta-v2 or modernbert.")
        problem = f"is '{model_type}', which transformers does not know."
        raise refusal("model_type", problem, remedy) from error
    for key, value in sizes.items():
        for name in names_of(config, key):
            setattr(config, name, value)
    _without_strangers(config, int(sizes["num_hidden_layers"]))
    return config


def names_of(config: PretrainedConfig, key: str) -> list[str]:
    """Return the names that a bert_config key has in a config; [] if the architecture has no such size."""
    return [name for name in (key, *OTHER_NAMES.get(key, ())) if hasattr(config, name)]


def _without_strangers(config: PretrainedConfig, num_layers: int) -> None:
    """Remove ids outside our vocabularies, and adjust lists with an entry per layer."""
    for name in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, name, None) is not None:
            setattr(config, name, None)
    config.pad_token_id = 0  # unless the data has another
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        config.layer_types = [kinds[index % len(kinds)] for index in range(num_layers)]


def mask_for(config: PretrainedConfig, mask_BT: Tensor) -> Tensor:
    """Return the mask in the form that a network accepts, from one (B, T) that is true at real tokens."""
    if config.model_type in WHOLE_MASKS:
        return mask_BT[:, None, None, :].expand(-1, -1, mask_BT.shape[1], -1)
    return mask_BT.long()


def tell_of_padding(config: PretrainedConfig) -> None:
    """Warn of an architecture whose output for a text depends on the padding behind it."""
    if config.model_type in READ_PADDING:
        problem = f"'{config.model_type}' reads padding (in transformers, too): the score of a text depends on others"
        log.warning(f"model: {problem} in its batch. exact: true avoids that (x-train, x-eval, x-pred).", once=True)


def has_segments(config: PretrainedConfig) -> bool:
    """Return whether a network reads token types; those trained without have one row for them, or no such input."""
    return int(getattr(config, "type_vocab_size", 0) or 0) > 1


def has_pooler(encoder: nn.Module) -> bool:
    """Return whether a network has its own pooler."""
    return getattr(encoder, "pooler", None) is not None


class FirstToken(nn.Module):
    """A pooler for encoders without one: one layer on the first token. Weight names are those of DeBERTa.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1; with GELU as in He et al., "DeBERTa", ICLR 2021, if the
    config says so.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        nn.init.normal_(self.dense.weight, std=config.initializer_range)
        nn.init.zeros_(self.dense.bias)
        self.activation = ACT2FN[getattr(config, "pooler_hidden_act", "tanh")]

    def forward(self, hidden_BTH: Tensor) -> Tensor:
        """Return (B, H)."""
        pooled: Tensor = self.activation(self.dense(hidden_BTH[:, 0]))
        return pooled


def is_blind_at_first(encoder: nn.Module) -> bool:
    """Return whether the first token sees none of those after it, as in networks that read from left to right."""
    config: Any = encoder.config
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES or config.is_encoder_decoder:  # which needs other inputs
        return False
    was_training = encoder.training
    ids = torch.tensor([[1, 2], [1, 3]])
    with torch.no_grad():
        first, other = encoder.eval()(input_ids=ids)[0][:, 0]
    encoder.train(was_training)
    return torch.allclose(first, other, atol=1e-6)


def layer_of(name: str) -> int | None:
    """Return the index of the layer of a weight; None if it is shared by layers or in none."""
    match = LAYER.search(name)
    return int(match[1]) if match and name.startswith("bert.") else None


def is_embedding(name: str) -> bool:
    """Return whether a weight belongs to the embeddings, or projects them to the width of the layers (ELECTRA)."""
    return ".embeddings." in name or EMBEDDING.match(name) is not None


def is_shared(name: str) -> bool:
    """Return whether a weight is shared by several layers, or follows the last one; a pooler is above the encoder."""
    return name.startswith("bert.") and ".pooler." not in name
