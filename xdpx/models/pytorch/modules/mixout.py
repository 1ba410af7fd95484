"""Mixout: dropout towards the pretrained weights instead of towards zero."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

from xdpx.models.pytorch.modules.dropout import Dropout

ANCHOR = "anchor"


class MixoutLinear(nn.Linear):
    """A linear layer of whose weight, in training, a share is that of the pretrained network; the rest is scaled up.

    The mean over the masks is the weight itself. The pretrained weight is kept beside it, under `anchor`.

    Source: Lee, Cho and Kang, "Mixout: Effective Regularization to Finetune Large-scale Pretrained Language Models",
    ICLR 2020, equation 5, in the form u + dropout(w - u).
    """

    anchor: Tensor

    def __init__(self, linear: nn.Linear, share: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.drop = Dropout(share)
        self.register_buffer(ANCHOR, linear.weight.detach().clone())

    def forward(self, features: Tensor) -> Tensor:
        """Give (..., out_features)."""
        if not self.training:
            return functional.linear(features, self.weight, self.bias)
        return functional.linear(features, self.anchor + self.drop(self.weight - self.anchor), self.bias)


def use_mixout(network: nn.Module, share: float) -> None:
    """Replace every linear layer inside a network; nothing for a share of 0."""
    if share == 0.0:
        return
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, MixoutLinear(child, share))


def with_anchors(model: nn.Module, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add to pretrained weights those that `model` is to mix in: the same, where the file has none of its own."""
    own = {name for name in model.state_dict() if name.endswith(f".{ANCHOR}")}
    weights = {f"{name.removesuffix('weight')}{ANCHOR}": value for name, value in found.items()}
    return {**{name: value for name, value in weights.items() if name in own}, **found}
