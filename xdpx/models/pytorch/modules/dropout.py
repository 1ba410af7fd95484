"""Dropout that is cheap on a CPU, where drawing the mask can cost as much as a matrix product; and two variants.

Multi-sample dropout averages logits over several masks; mixout replaces weights by the pretrained ones instead of by
zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 1 << 16
"""Random numbers have 16 bits, so a share of 0.1 is 6554 / 65536."""


class Dropout(nn.Dropout):
    """`nn.Dropout`, with the same distribution and far faster random numbers on a CPU.

    torch draws one Bernoulli number per element, at 4 to 10 ns each; four 16-bit numbers from one 64-bit word of a
    generator seeded by torch cost a tenth of that. The mask is a pure function of torch's random state.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Set a share `p` of the numbers to 0 in training, and scale the rest to keep the mean."""
        if not self.training or self.p == 0.0 or x.device.type != "cpu":
            return functional.dropout(x, self.p, self.training)
        kept = functional.hardtanh_(random_levels(x.numel()).sub_(_first_kept(self.p) - 1.0), 0.0, 1.0)
        return x * kept.mul_(scale_of(self.p)).to(x.dtype).view(x.shape)


def scale_of(share: float) -> float:
    """Return the factor on the remaining numbers if `share`, rounded to 16 bits, is set to 0."""
    return LEVELS / (LEVELS - _dropped_levels(share)) if share < 1.0 else 0.0


def random_signs(count: int, share: float) -> Tensor:
    """Return `count` floats, -1.0 with probability `share` and else 1.0, drawn from torch's random state."""
    return functional.hardtanh_(random_levels(count).sub_(_first_kept(share) - 0.5).mul_(2.0), -1.0, 1.0)


def random_levels(count: int) -> Tensor:
    """Return `count` floats, uniform over the integers from -32768 to 32767.

    Source of the generator: SFC64, part of PractRand by Chris Doty-Humphrey, as in numpy.
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    generator = np.random.Generator(np.random.SFC64(seed))
    words = generator.integers(0, 0xFFFFFFFFFFFFFFFF, size=math.ceil(count / 4), dtype=np.uint64, endpoint=True)
    return torch.from_numpy(words.view(np.int16))[:count].float()


def use_fast_dropout(network: nn.Module) -> None:
    """Replace every `nn.Dropout` inside a network of another library."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))


def _dropped_levels(share: float) -> int:
    return round(share * LEVELS)


def _first_kept(share: float) -> float:
    return float(_dropped_levels(share) - LEVELS // 2)


def classified(features: Tensor, dropout: nn.Module, classifier: nn.Module, *, samples: int) -> Tensor:
    """Return logits (B, C) of features (B, H); in training the mean over `samples` dropout masks.

    Source: Inoue, "Multi-Sample Dropout for Accelerated Training and Better Generalization", 2019, section 2, but with
    the mean over logits, so that any loss can follow; the paper takes it over losses.
    """
    count = samples if dropout.training else 1
    logits: Tensor = torch.stack([classifier(dropout(features)) for _ in range(count)]).mean(dim=0)
    return logits


ANCHOR = "anchor"


class MixoutLinear(nn.Linear):
    """A linear layer that in training uses the pretrained weight for a share of its elements; the rest is scaled up.

    The mean over masks is the weight itself. The pretrained weight is stored as `anchor`.

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
        """Return (..., out_features)."""
        if not self.training:
            return functional.linear(features, self.weight, self.bias)
        return functional.linear(features, self.anchor + self.drop(self.weight - self.anchor), self.bias)


def use_mixout(network: nn.Module, share: float) -> None:
    """Replace every linear layer inside a network; do nothing for a share of 0."""
    if share == 0.0:
        return
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, MixoutLinear(child, share))


def with_anchors(model: nn.Module, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return pretrained weights with the anchors of `model` added: copies, unless the file has anchors."""
    own = {name for name in model.state_dict() if name.endswith(f".{ANCHOR}")}
    weights = {f"{name.removesuffix('weight')}{ANCHOR}": value for name, value in found.items()}
    return {**{name: value for name, value in weights.items() if name in own}, **found}
