"""Bidirectional recurrent layers. Letters: B batch, T positions, D width."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.modules.dropout import Dropout

Cell = Literal["lstm", "gru"]
CELLS: dict[Cell, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    """Layers that read a text forward and backward, with dropout before each but the first.

    A text is reversed within its own length, so the backward direction starts at its last real token whatever padding
    follows, and lengths need not be copied to the host.

    Args:
        cell: kind of cell.
        size_in, size_out: widths; each direction has half of `size_out`.
        layers: number of layers.
        dropout: share of features set to 0 in training.

    Source: Schuster and Paliwal, "Bidirectional Recurrent Neural Networks", IEEE Trans. on Signal Processing, 1997;
    Hochreiter and Schmidhuber (1997) for the LSTM, Cho et al. (2014) for the GRU.
    """

    def __init__(self, cell: Cell, *, size_in: int, size_out: int, layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [size_in] + [size_out] * (layers - 1)
        self.forwards = nn.ModuleList(_direction(cell, size, size_out // 2) for size in sizes)
        self.backwards = nn.ModuleList(_direction(cell, size, size_out // 2) for size in sizes)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, T, size_out); padding must follow the real tokens, and values there are meaningless."""
        turned_BT = turned(mask_BT)
        x = x_BTD
        for number, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            x = self.dropout(x) if number else x
            ahead, _ = forwards(x)
            back, _ = backwards(_reorder(x, turned_BT))
            x = torch.cat([ahead, _reorder(back, turned_BT)], dim=-1)
        last: Tensor = self.dropout(x)
        return last


def turned(mask_BT: Tensor) -> Tensor:
    """Return the index (B, T) that reverses the real tokens of each row; padding is unchanged."""
    positions = torch.arange(mask_BT.shape[1], device=mask_BT.device).expand(mask_BT.shape)
    lengths = mask_BT.sum(dim=1, keepdim=True)
    return torch.where(mask_BT, lengths - 1 - positions, positions)


def _reorder(x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
    return x_BTD.gather(1, positions_BT.unsqueeze(-1).expand(-1, -1, x_BTD.shape[2]))


def _direction(cell: Cell, size_in: int, size_out: int) -> nn.Module:
    """Return cells with orthogonal recurrent matrices, and for an LSTM with the bias 1 of the forget gate.

    Source: Jozefowicz et al., "An Empirical Exploration of Recurrent Network Architectures", ICML 2015, section 2.2.
    """
    made = CELLS[cell](size_in, size_out, batch_first=True)
    into, recurrent, bias_into, bias_recurrent = made.parameters()
    nn.init.xavier_uniform_(into)
    for gate in recurrent.detach().view(-1, size_out, size_out):
        nn.init.orthogonal_(gate)
    nn.init.zeros_(bias_into)
    nn.init.zeros_(bias_recurrent)
    if cell == "lstm":
        bias_into.detach()[size_out : 2 * size_out].fill_(1.0)  # order of the gates: input, forget, cell, output
    return made
