"""From one or two text vectors to logits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.modules.convolution import linear
from xdpx.models.pytorch.modules.dropout import Dropout

Matching = Literal["simple", "full", "symmetric"]


def prediction(size_in: int, hidden_size: int, num_classes: int, dropout: float) -> nn.Module:
    """Give a two-layer classifier with dropout in front of both layers."""
    hidden = linear(size_in, hidden_size, activation=True)
    return nn.Sequential(Dropout(dropout), hidden, Dropout(dropout), linear(hidden_size, num_classes))


class MatchingPrediction(nn.Module):
    """Logits from two text vectors a and b.

    `simple` looks at [a; b], `full` at [a; b; a-b; a*b], `symmetric` at [a; b; |a-b|; a*b].

    Source: Yang et al., "Simple and Effective Text Matching with Richer Alignment Features", ACL 2019, section 2.5.
    """

    def __init__(self, how: Matching, size: int, hidden_size: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.how = how
        self.classifier = prediction(size * (2 if how == "simple" else 4), hidden_size, num_classes, dropout)

    def forward(self, a_BD: Tensor, b_BD: Tensor) -> Tensor:
        """Give (B, num_classes)."""
        features = [a_BD, b_BD]
        if self.how != "simple":
            difference = a_BD - b_BD
            features += [difference.abs() if self.how == "symmetric" else difference, a_BD * b_BD]
        logits: Tensor = self.classifier(torch.cat(features, dim=-1))
        return logits
