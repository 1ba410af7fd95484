"""Embedding of token ids."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.models.pytorch.modules.dropout import Dropout


class Embedding(nn.Module):
    """A table of vectors with dropout. The row of padding is zero and is not trained.

    Args:
        vocab_size: number of rows.
        dim: length of a vector.
        pad_index: row of padding.
        fixed: whether the table is not trained.
        dropout: share of features set to 0 in training.
    """

    def __init__(self, vocab_size: int, dim: int, *, pad_index: int, fixed: bool, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, dim, padding_idx=pad_index)
        # Vectors of norm about 1 for any dimension: small enough for Adam to change their direction within an epoch.
        nn.init.normal_(self.table.weight, std=dim**-0.5)
        with torch.no_grad():
            self.table.weight[pad_index].zero_()
        self.table.weight.requires_grad_(not fixed)
        self.dropout = Dropout(dropout)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the vectors, shape (B, T, dim)."""
        vectors: Tensor = self.dropout(self.table(tokens_BT))
        return vectors

    def fill(self, vectors: Tensor, source: str) -> None:
        """Copy pretrained vectors (vocab_size, dim) into the table. Raises ConfigError for another shape."""
        if vectors.shape != self.table.weight.shape:
            here = "x".join(map(str, self.table.weight.shape))
            there = "x".join(map(str, vectors.shape))
            problem = f"asks for a table of {here} numbers, but {source} contains {there}."
            raise refusal("embedding_dim", problem, "Use the dimension that x-prepro wrote.")
        with torch.no_grad():
            self.table.weight.copy_(vectors)
