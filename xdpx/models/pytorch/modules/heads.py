"""Pooling of a text to one vector, and classifiers on one or two vectors. B batch, T positions, D width.

A text without tokens is pooled to zeros.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.modules.convolution import linear
from xdpx.models.pytorch.modules.dropout import Dropout


class MaxPooling(nn.Module):
    """The maximum of each feature over the real tokens."""

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, D)."""
        lowest = torch.finfo(x_BTD.dtype).min
        highest: Tensor = x_BTD.masked_fill(~mask_BT.unsqueeze(-1), lowest).amax(dim=1)
        return highest.masked_fill(~mask_BT.any(dim=1, keepdim=True), 0.0)


class MeanPooling(nn.Module):
    """The mean of each feature over the real tokens."""

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, D)."""
        total = x_BTD.masked_fill(~mask_BT.unsqueeze(-1), 0.0).sum(dim=1)
        return total / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


class AttentionPooling(nn.Module):
    """A mean over the real tokens, weighted by a small learned network.

    Source: Yang et al., "Hierarchical Attention Networks", NAACL 2016, section 2.2.
    """

    def __init__(self, size: int, *, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1, bias=False))
        self.output: nn.Module = nn.Identity() if output_size == size else nn.Linear(size, output_size)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, output_size)."""
        scores_BT = self.score(x_BTD).squeeze(-1)
        weights_BT = scores_BT.masked_fill(~mask_BT, torch.finfo(scores_BT.dtype).min).softmax(dim=-1)
        mean_BD = torch.einsum("bt,btd->bd", weights_BT * mask_BT, x_BTD)
        out: Tensor = self.output(mean_BD)
        return out


Matching = Literal["simple", "full", "symmetric"]


def prediction(size_in: int, hidden_size: int, num_classes: int, dropout: float) -> nn.Module:
    """Return a two-layer classifier with dropout before both layers."""
    hidden = linear(size_in, hidden_size, activation=True)
    return nn.Sequential(Dropout(dropout), hidden, Dropout(dropout), linear(hidden_size, num_classes))


class MatchingPrediction(nn.Module):
    """Logits from two text vectors a and b.

    The features are [a; b] for `simple`, [a; b; a-b; a*b] for `full`, [a; b; |a-b|; a*b] for `symmetric`.

    Source: Yang et al., "Simple and Effective Text Matching with Richer Alignment Features", ACL 2019, section 2.5.
    """

    def __init__(self, how: Matching, size: int, hidden_size: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.how = how
        self.classifier = prediction(size * (2 if how == "simple" else 4), hidden_size, num_classes, dropout)

    def forward(self, a_BD: Tensor, b_BD: Tensor) -> Tensor:
        """Return (B, num_classes)."""
        features = [a_BD, b_BD]
        if self.how != "simple":
            difference = a_BD - b_BD
            features += [difference.abs() if self.how == "symmetric" else difference, a_BD * b_BD]
        logits: Tensor = self.classifier(torch.cat(features, dim=-1))
        return logits
