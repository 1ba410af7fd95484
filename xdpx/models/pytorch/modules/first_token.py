"""The last layer of BERT computed for the first token only. Letters: B batch, T positions, H hidden size.

A classifier uses one vector per text, that of the first token. The last layer's outputs for other tokens are not
needed, so only their keys and values are computed. With six layers that saves a seventh of the work, in both passes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import BertModel, CamembertModel, RobertaModel, XLMRobertaModel

from xdpx.models.pytorch.modules import attention

# Only these: their pooler reads the first token, and normalisation follows each part of a layer.
ENCODERS = (BertModel, RobertaModel, XLMRobertaModel, CamembertModel)


def fits(encoder: Any) -> bool:
    """Return whether `pooled` equals the network's `pooler_output`."""
    config = encoder.config
    plain = type(encoder) in ENCODERS and not config.is_decoder and len(encoder.encoder.layer) > 0
    return plain and config._attn_implementation == attention.NAME


def pooled(
    encoder: Any, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None = None
) -> Tensor:
    """Return the pooled first token (B, H) of ids (B, T).

    Args:
        encoder: a network that `fits`.
        input_ids: (B, T).
        attention_mask: (B, 1, T or 1, T), true at positions to attend to; None for all.
        token_type_ids: (B, T) or None.
    """
    hidden = encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
    *below, last = encoder.encoder.layer
    for layer in below:
        hidden = layer(hidden, attention_mask)
    mask = None if attention_mask is None else attention_mask[:, :, :1]
    first: Tensor = encoder.pooler(_last_layer(last, hidden, mask))
    return first


def _last_layer(layer: Any, hidden_BTH: Tensor, mask_B11T: Tensor | None) -> Tensor:
    """Return (B, 1, H): attention from the first token to all, then the feed-forward network on the first token."""
    first_B1H, looking = hidden_BTH[:, :1], layer.attention.self
    query, key, value = (
        part.view(*part.shape[:-1], -1, looking.attention_head_size).transpose(1, 2)  # ONNX has no unflatten
        for part in (looking.query(first_B1H), looking.key(hidden_BTH), looking.value(hidden_BTH))
    )
    dropout = looking.dropout.p if layer.training else 0.0
    seen, _ = attention.attend(looking, query, key, value, mask_B11T, dropout=dropout, scaling=looking.scaling)
    output: Tensor = layer.attention.output(seen.flatten(2), first_B1H)
    final: Tensor = layer.output(layer.intermediate(output), output)
    return final
