"""Take attention heads out of a BERT, in the network and in weights that still hold them.

Source: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

Plan = dict[int, frozenset[int]]
WEIGHT = re.compile(r"bert\.encoder\.layer\.\d+\.attention\.(self\.(?:query|key|value)|output\.dense)\.(weight|bias)")


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


def prune_weights(found: Mapping[str, Tensor], heads_by_layer: Plan, *, heads: int, width: int) -> dict[str, Tensor]:
    """Take the same heads out of weights that still hold all of them; others pass unchanged.

    Args:
        found: weights under our names.
        heads_by_layer: what to take out.
        heads: number of heads of an unpruned layer.
        width: features of each head.
    """
    return {
        name: value
        if (axis := _axis_of_heads(name)) is None or value.shape[axis] != heads * width
        else value.index_select(axis, _kept_features(heads_by_layer.get(_layer_of(name), frozenset()), heads, width))
        for name, value in found.items()
    }


def _layer_of(name: str) -> int:
    return int(name.split(".layer.")[1].split(".")[0])


def _axis_of_heads(name: str) -> int | None:
    """Give the axis along which the heads of this weight lie; None when it has none."""
    match = WEIGHT.fullmatch(name)
    if match is None or (match[1], match[2]) == ("output.dense", "bias"):
        return None
    return 1 if match[1] == "output.dense" else 0


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
    return ConfigError(THIS_RUN, [Fault("pruned_heads", problem, "Correct it, or leave it out.")])
