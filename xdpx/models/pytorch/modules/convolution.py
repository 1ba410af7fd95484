"""Convolutions over the positions of a text. Letters: B batch, T positions, D width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from xdpx.models.pytorch.modules.dropout import Dropout


class Convolution(nn.Module):
    """Convolutions of several kernel sizes in parallel, weight-normalised, with GELU; the length is preserved.

    Source: Salimans and Kingma, "Weight Normalization", NeurIPS 2016; He et al. (2015) for the initialisation.
    """

    def __init__(self, size_in: int, size_out: int, kernel_sizes: Sequence[int]) -> None:
        super().__init__()
        each = size_out // len(kernel_sizes)
        self.convolutions = nn.ModuleList(_convolution(size_in, each, width) for width in kernel_sizes)
        self.activation = nn.GELU()

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return (B, T, size_out)."""
        across = x_BTD.transpose(1, 2)
        length = across.shape[2]  # an even kernel yields one position too many
        joined = torch.cat([convolution(across)[..., :length] for convolution in self.convolutions], dim=1)
        out: Tensor = self.activation(joined).transpose(1, 2)
        return out


class Encoder(nn.Module):
    """Layers of convolutions, with dropout before each but the first; padding does not affect real tokens.

    Args:
        size_in, size_out: widths.
        layers: number of layers.
        kernel_sizes: kernel sizes, with equal parts of `size_out`.
        dropout: share of features set to 0 in training.
        residual: add the input of each layer but the first to its output.
    """

    def __init__(
        self,
        *,
        size_in: int,
        size_out: int,
        layers: int,
        kernel_sizes: Sequence[int],
        dropout: float,
        residual: bool = False,
    ) -> None:
        super().__init__()
        sizes = [size_in] + [size_out] * (layers - 1)
        self.layers = nn.ModuleList(Convolution(size, size_out, kernel_sizes) for size in sizes)
        self.dropout = Dropout(dropout)
        self.residual = residual

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, T, size_out); values at padded positions are meaningless."""
        padding = ~mask_BT.unsqueeze(-1)
        x = x_BTD
        for number, layer in enumerate(self.layers):
            x = x.masked_fill(padding, 0.0)
            out = layer(self.dropout(x) if number else x)
            x = out + x if self.residual and number else out
        last: Tensor = self.dropout(x)
        return last


def linear(size_in: int, size_out: int, *, activation: bool = False) -> nn.Module:
    """Return a weight-normalised linear layer, followed by GELU if requested."""
    layer = nn.Linear(size_in, size_out)
    nn.init.normal_(layer.weight, std=((2.0 if activation else 1.0) / size_in) ** 0.5)
    nn.init.zeros_(layer.bias)
    normalised: nn.Module = weight_norm(layer)
    return nn.Sequential(normalised, nn.GELU()) if activation else normalised


def _convolution(size_in: int, size_out: int, width: int) -> nn.Module:
    layer = nn.Conv1d(size_in, size_out, width, padding=width // 2)
    nn.init.normal_(layer.weight, std=(2.0 / (size_in * width)) ** 0.5)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    normalised: nn.Module = weight_norm(layer)
    return normalised
