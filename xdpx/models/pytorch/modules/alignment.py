"""Attention between two texts. Letters: B batch, T and S positions of the texts, D width."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.modules.convolution import linear
from xdpx.models.pytorch.modules.dropout import Dropout

Projection = Literal["identity", "linear"]


class Alignment(nn.Module):
    """For each token of one text, the mean of the other text weighted by similarity; padding has no weight.

    Source: Yang et al., "Simple and Effective Text Matching with Richer Alignment Features", ACL 2019, section 2.2.
    """

    def __init__(self, how: Projection, size: int, hidden_size: int, *, dropout: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(hidden_size**-0.5))
        self.project: nn.Module = nn.Identity()
        if how == "linear":
            self.project = nn.Sequential(Dropout(dropout), linear(size, hidden_size, activation=True))

    def forward(self, a_BTD: Tensor, b_BSD: Tensor, mask_a_BT: Tensor, mask_b_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Return for a its attention over b (B, T, D), and for b its attention over a (B, S, D)."""
        scores_BTS = (self.project(a_BTD) @ self.project(b_BSD).transpose(1, 2)) * self.temperature
        return attend_to_each_other(scores_BTS, a_BTD, b_BSD, mask_a_BT, mask_b_BS)


def attend_to_each_other(
    scores_BTS: Tensor, a_BTD: Tensor, b_BSD: Tensor, mask_a_BT: Tensor, mask_b_BS: Tensor
) -> tuple[Tensor, Tensor]:
    """Return for a its attention over b (B, T, D), and for b its attention over a (B, S, D), without padding.

    Source: Parikh et al., "A Decomposable Attention Model for Natural Language Inference", EMNLP 2016, section 3.1.
    """
    lowest = torch.finfo(scores_BTS.dtype).min
    over_b_BTS = scores_BTS.masked_fill(~mask_b_BS.unsqueeze(1), lowest).softmax(dim=2)
    over_a_BTS = scores_BTS.masked_fill(~mask_a_BT.unsqueeze(2), lowest).softmax(dim=1)
    return over_b_BTS @ b_BSD, over_a_BTS.transpose(1, 2) @ a_BTD


class Fusion(nn.Module):
    """Compares a text with its aligned vectors in three ways, and merges the results.

    Source: the same paper, section 2.3.
    """

    def __init__(self, size: int, hidden_size: int, *, dropout: float) -> None:
        super().__init__()
        self.as_is = linear(2 * size, hidden_size, activation=True)
        self.difference = linear(2 * size, hidden_size, activation=True)
        self.product = linear(2 * size, hidden_size, activation=True)
        self.dropout = Dropout(dropout)
        self.merge = linear(3 * hidden_size, hidden_size, activation=True)

    def forward(self, x_BTD: Tensor, aligned_BTD: Tensor) -> Tensor:
        """Return (B, T, hidden_size)."""
        findings = [
            self.as_is(torch.cat([x_BTD, aligned_BTD], dim=-1)),
            self.difference(torch.cat([x_BTD, x_BTD - aligned_BTD], dim=-1)),
            self.product(torch.cat([x_BTD, x_BTD * aligned_BTD], dim=-1)),
        ]
        merged: Tensor = self.merge(self.dropout(torch.cat(findings, dim=-1)))
        return merged
