"""Remove attention heads of a BERT, in the network and in unpruned weights.

Source: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError, refusal

if TYPE_CHECKING:
    from transformers import PretrainedConfig

HeadsByLayer = dict[int, frozenset[int]]
WEIGHT = re.compile(r"bert\.encoder\.layer\.\d+\.attention\.(self\.(?:query|key|value)|output\.dense)\.(weight|bias)")


def plan(heads: Mapping[str, list[int]] | None, num_layers: int) -> HeadsByLayer:
    """Return the heads to remove by layer; a negative layer counts from the last.

    Raises:
        ConfigError: a layer does not exist.
    """
    found: HeadsByLayer = {}
    for text, numbers in (heads or {}).items():
        layer = int(text) + num_layers * (int(text) < 0)
        if not 0 <= layer < num_layers:
            raise _fault(f"names layer {text}, but there are {num_layers} layers.")
        found[layer] = frozenset(numbers) | found.get(layer, frozenset())
    return found


def prune(encoder: Any, heads_by_layer: HeadsByLayer) -> None:
    """Remove heads from the attention of a BERT encoder in place.

    Raises:
        ConfigError: a head does not exist, none would be left, or the encoder is not a BERT.
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


def prune_weights(
    found: Mapping[str, Tensor], heads_by_layer: HeadsByLayer, *, heads: int, width: int
) -> dict[str, Tensor]:
    """Remove the same heads from unpruned weights; other weights are unchanged.

    Args:
        found: weights under our names.
        heads_by_layer: heads to remove.
        heads: number of heads of an unpruned layer.
        width: features of each head.
    """
    return {
        name: value
        if (axis := _axis_of_heads(name)) is None or value.shape[axis] != heads * width
        else value.index_select(axis, _kept_features(heads_by_layer.get(_layer_of(name), frozenset()), heads, width))
        for name, value in found.items()
    }


def note(config: PretrainedConfig, heads_by_layer: HeadsByLayer) -> None:
    """Record the pruned heads in a config, so that the same network is built from config.json."""
    if heads_by_layer:
        config.pruned_heads = {str(layer): sorted(heads) for layer, heads in sorted(heads_by_layer.items())}


def outputs(encoder: Any) -> list[nn.Linear]:
    """Return the linear layer after the heads of each layer of a BERT encoder.

    Raises:
        ConfigError: the encoder is not a BERT.
    """
    try:
        return [layer.attention.output.dense for layer in encoder.encoder.layer]
    except AttributeError as error:
        raise _fault("needs a BERT encoder; this architecture has no such layers.") from error


def importances(encoder: Any, losses: Iterable[Tensor]) -> list[Tensor]:
    """Return the importance of each head for a loss: one row (heads,) per layer, each of norm 1.

    It is the mean over batches of |dL / dm|, where m = 1 scales the output of a head. As a head's output only goes
    through its own columns of W, dL / dm is the sum over these of W * dL / dW, so no mask is needed in the network.

    Args:
        encoder: a BERT.
        losses: of batches, each with its graph.

    Source: Michel, Levy and Neubig, NeurIPS 2019, equation 2, and section 3.1 for the norm by layer.
    """
    layers = outputs(encoder)
    widths = [layer.attention.self.attention_head_size for layer in encoder.encoder.layer]
    total = [torch.zeros(layer.in_features // width) for layer, width in zip(layers, widths, strict=True)]
    for loss in losses:
        gradients = torch.autograd.grad(loss, [layer.weight for layer in layers])
        for found, layer, gradient, width in zip(total, layers, gradients, widths, strict=True):
            by_feature = (layer.weight.detach() * gradient).sum(dim=0)
            found += by_feature.view(-1, width).sum(dim=1).abs().cpu()
    return [found / found.norm().clamp(min=torch.finfo(found.dtype).tiny) for found in total]


def weakest(rows: Sequence[Tensor], counts: Mapping[str, int]) -> HeadsByLayer:
    """Return the given number of least important heads of each layer; a negative layer counts from the last.

    Raises:
        ConfigError: a layer does not exist, or none of its heads would be left.
    """
    named = plan({layer: [] for layer in counts}, len(rows))
    found: HeadsByLayer = {}
    for text, layer in zip(counts, named, strict=True):
        if not 0 <= counts[text] < len(rows[layer]):
            raise _fault(f"takes {counts[text]} of the {len(rows[layer])} heads of layer {text}; one must remain.")
        found[layer] = frozenset(rows[layer].argsort()[: counts[text]].tolist())
    return found


def _layer_of(name: str) -> int:
    return int(name.split(".layer.")[1].split(".")[0])


def _axis_of_heads(name: str) -> int | None:
    """Return the dimension of this weight that is split into heads; None if there is none."""
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
    return refusal("pruned_heads", problem, "Correct it, or leave it out.")
