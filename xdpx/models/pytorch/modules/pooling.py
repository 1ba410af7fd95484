"""One vector per text. Letters: B batch, T positions, D width. A text without a token gives zeros."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MaxPooling(nn.Module):
    """The largest value of each feature over the real tokens."""

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Give (B, D)."""
        lowest = torch.finfo(x_BTD.dtype).min
        highest: Tensor = x_BTD.masked_fill(~mask_BT.unsqueeze(-1), lowest).amax(dim=1)
        return highest.masked_fill(~mask_BT.any(dim=1, keepdim=True), 0.0)


class MeanPooling(nn.Module):
    """The mean of each feature over the real tokens."""

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Give (B, D)."""
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
        """Give (B, output_size)."""
        scores_BT = self.score(x_BTD).squeeze(-1)
        weights_BT = scores_BT.masked_fill(~mask_BT, torch.finfo(scores_BT.dtype).min).softmax(dim=-1)
        mean_BD = torch.einsum("bt,btd->bd", weights_BT * mask_BT, x_BTD)
        out: Tensor = self.output(mean_BD)
        return out
