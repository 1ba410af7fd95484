"""What encoders of transformers differ in: names of their sizes, masks, the vector of a text, numbers of layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig
from transformers.activations import ACT2FN

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, nearest

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "attention_probs_dropout_prob": ("attention_dropout",),
    "hidden_act": ("hidden_activation", "activation"),
    "hidden_dropout_prob": ("mlp_dropout", "dropout"),
}
"""Names that some architectures have for a key of the group bert_config."""

WHOLE_MASKS = frozenset({"albert", "bert", "camembert", "electra", "roberta", "xlm-roberta"})
"""Architectures that take a mask (B, 1, T, T) as it is; others make theirs, such as windows, of one (B, T)."""

LAYER = re.compile(r"\.(?:layer|layers)\.(\d+)\.")


def new_config(model_type: str, sizes: Mapping[str, Any]) -> PretrainedConfig:
    """Return the config of an architecture with these sizes.

    Args:
        model_type: its name in transformers.
        sizes: the keys of the group bert_config.

    Raises:
        ConfigError: transformers knows no such architecture.
    """
    try:
        config: PretrainedConfig = AutoConfig.for_model(model_type)
    except ValueError as error:
        hint = nearest(model_type, [*WHOLE_MASKS, "deberta", "deberta-v2", "modernbert", "distilbert"])
        remedy = f"Did you mean '{hint}'?" if hint else "Use bert, roberta, albert, electra, deberta-v2 or modernbert."
        problem = f"is '{model_type}', which transformers does not know."
        raise ConfigError(THIS_RUN, [Fault("model_type", problem, remedy)]) from error
    for key, value in sizes.items():
        for name in (key, *OTHER_NAMES.get(key, ())):
            if hasattr(config, name):
                setattr(config, name, value)
    _without_strangers(config, int(sizes["num_hidden_layers"]))
    return config


def _without_strangers(config: PretrainedConfig, num_layers: int) -> None:
    """Forget ids beyond our vocabularies, and bring lists with an entry for each layer to their length."""
    for name in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, name, None) is not None:
            setattr(config, name, None)
    config.pad_token_id = 0  # until the data say another
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        config.layer_types = [kinds[index % len(kinds)] for index in range(num_layers)]


def mask_for(config: PretrainedConfig, mask_BT: Tensor) -> Tensor:
    """Return the mask that a network is called with, of one that is true at real tokens."""
    if config.model_type in WHOLE_MASKS:
        return mask_BT[:, None, None, :].expand(-1, -1, mask_BT.shape[1], -1)
    return mask_BT.long()


def has_pooler(encoder: nn.Module) -> bool:
    """Tell whether a network gives a pooled vector of the first token by itself."""
    return getattr(encoder, "pooler", None) is not None


class FirstToken(nn.Module):
    """A pooler for encoders that have none: one layer on the first token. Its weights are named as DeBERTa's.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1; with GELU as in He et al., "DeBERTa", ICLR 2021, where the
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


def layer_of(name: str) -> int | None:
    """Return the layer of an encoder that a weight belongs to; None for one that layers share, or that is in none."""
    match = LAYER.search(name)
    return int(match[1]) if match and name.startswith("bert.") else None


def is_encoder(name: str) -> bool:
    """Tell whether hidden states depend on a weight, not only what stands above them: a pooler, a head."""
    return name.startswith("bert.") and not name.startswith("bert.pooler.")


def is_shared(name: str) -> bool:
    """Tell whether a weight is used by several layers, or ends their stack."""
    return name.startswith(("bert.encoder.", "bert.final_norm."))
