"""Take attention heads out of a BERT, in the network and in weights that still hold them.

Source: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError, Fault

Plan = dict[int, frozenset[int]]
WEIGHT = re.compile(r"bert\.encoder\.layer\.(\d+)\.attention\.(self\.(?:query|key|value)|output\.dense)\.(weight|bias)")


def plan(heads: Mapping[str, list[int]] | None, num_layers: int) -> Plan:
    """Give the heads to take out by layer; a negative layer counts from the last.

    Raises:
        ConfigError: a layer does not exist.
    """
    found: Plan = {}
    for text, numbers in (heads or {}).items():
        layer = int(text) + num_layers * (int(text) < 0)
        if not 0 <= layer < num_layers:
            raise _fault(f"names layer {text}, but there are {num_layers} layers.")
        found[layer] = frozenset(numbers) | found.get(layer, frozenset())
    return found


def prune(encoder: Any, heads_by_layer: Plan) -> None:
    """Shrink the attention of a BERT encoder in place.

    Raises:
        ConfigError: a head does not exist, none would be left, or this encoder is no BERT.
    """
    for layer, heads in heads_by_layer.items():
        try:
            attention = encoder.encoder.layer[layer].attention
            inner, output = attention.self, attention.output
            width, count = inner.attention_head_size, inner.num_attention_heads
        except AttributeError as error:
            raise _fault("needs a BERT encoder; this architecture has no such layers.") from error
        if not heads <= set(range(count)) or len(heads) == count:
            raise _fault(f"names heads {sorted(heads)} of layer {layer}, which has {count} heads and must keep one.")
        kept = _kept_features(heads, count, width)
        inner.query, inner.key, inner.value = (_rows(each, kept) for each in (inner.query, inner.key, inner.value))
        output.dense = _columns(output.dense, kept)
        inner.num_attention_heads = count - len(heads)
        inner.all_head_size = len(kept)


def prune_weights(found: Mapping[str, Tensor], heads_by_layer: Plan, head_size: int) -> dict[str, Tensor]:
    """Take the same heads out of weights that still hold all of them; others pass unchanged."""
    return {name: _prune_weight(name, value, heads_by_layer, head_size) for name, value in found.items()}


def _prune_weight(name: str, value: Tensor, heads_by_layer: Plan, head_size: int) -> Tensor:
    match = WEIGHT.fullmatch(name)
    heads = heads_by_layer.get(int(match[1])) if match else None
    if match is None or not heads:
        return value
    across = match[2] == "output.dense"
    if across and match[3] == "bias":
        return value
    axis, whole = (1, value.shape[0]) if across else (0, value.shape[-1] if value.dim() > 1 else 0)
    if whole and value.shape[axis] != whole:  # pruned already
        return value
    count = value.shape[axis] // head_size
    if max(heads) >= count:
        return value
    return value.index_select(axis, _kept_features(heads, count, head_size))


def _kept_features(heads: frozenset[int], count: int, width: int) -> Tensor:
    kept = [head for head in range(count) if head not in heads]
    return (torch.tensor(kept)[:, None] * width + torch.arange(width)).flatten()


def _rows(layer: nn.Linear, kept: Tensor) -> nn.Linear:
    smaller = nn.Linear(layer.in_features, len(kept))
    with torch.no_grad():
        smaller.weight.copy_(layer.weight[kept])
        smaller.bias.copy_(layer.bias[kept])
    return smaller


def _columns(layer: nn.Linear, kept: Tensor) -> nn.Linear:
    smaller = nn.Linear(len(kept), layer.out_features)
    with torch.no_grad():
        smaller.weight.copy_(layer.weight[:, kept])
        smaller.bias.copy_(layer.bias)
    return smaller


def _fault(problem: str) -> ConfigError:
    return ConfigError("model", [Fault("pruned_heads", problem, "Correct it, or leave it out.")])
