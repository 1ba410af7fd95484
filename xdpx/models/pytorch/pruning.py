"""Remove attention heads of a BERT, in the network and in weights that still hold them.

Source: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

if TYPE_CHECKING:
    from transformers import PretrainedConfig

HeadsByLayer = dict[int, frozenset[int]]
WEIGHT = re.compile(r"bert\.encoder\.layer\.\d+\.attention\.(self\.(?:query|key|value)|output\.dense)\.(weight|bias)")


def plan(heads: Mapping[str, list[int]] | None, num_layers: int) -> HeadsByLayer:
    """Return the heads to take out by layer; a negative layer counts from the last.

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


def prune_weights(
    found: Mapping[str, Tensor], heads_by_layer: HeadsByLayer, *, heads: int, width: int
) -> dict[str, Tensor]:
    """Remove the same heads from weights that still hold all of them; others pass unchanged.

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


def note(config: PretrainedConfig, heads_by_layer: HeadsByLayer) -> None:
    """Write down in a config which heads are gone, so that whoever reads config.json builds the same network."""
    if heads_by_layer:
        config.pruned_heads = {str(layer): sorted(heads) for layer, heads in sorted(heads_by_layer.items())}


def outputs(encoder: Any) -> list[nn.Linear]:
    """Return what joins the heads of each layer of a BERT encoder.

    Raises:
        ConfigError: this encoder is no BERT.
    """
    try:
        return [layer.attention.output.dense for layer in encoder.encoder.layer]
    except AttributeError as error:
        raise _fault("needs a BERT encoder; this architecture has no such layers.") from error


def importances(encoder: Any, losses: Iterable[Tensor]) -> list[Tensor]:
    """Return how much a loss depends on each head: one row (heads,) for each layer, of length 1 in every layer.

    That is the mean over batches of |dL / dm|, where m = 1 scales the output of a head. As a head's output goes through
    its own columns of W alone, dL / dm is the sum over these of W * dL / dW: no mask has to be put into the network.

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
    """Return so many of the least important heads of each named layer; a negative layer counts from the last.

    Raises:
        ConfigError: a layer does not exist, or none of its heads would be left.
    """
    named = plan({layer: [] for layer in counts}, len(rows))
    found: HeadsByLayer = {}
    for text, layer in zip(counts, named, strict=True):
        if not 0 <= counts[text] < len(rows[layer]):
            raise _fault(f"takes {counts[text]} of the {len(rows[layer])} heads of layer {text}; one must stay.")
        found[layer] = frozenset(rows[layer].argsort()[: counts[text]].tolist())
    return found


def _layer_of(name: str) -> int:
    return int(name.split(".layer.")[1].split(".")[0])


def _axis_of_heads(name: str) -> int | None:
    """Return the axis along which the heads of this weight lie; None when it has none."""
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
