"""Light networks with one number as output: for a text, for a pair. B batch, T and S positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.convolutional import ClsCnn
from xdpx.models.pytorch.matching import RE2
from xdpx.models.pytorch.parameters import NumberParameters


class Units(nn.Module):
    """Scales outputs to the range of the labels: output * standard deviation + mean.

    Both are over the distinct label values, not over rows; without `standardize` the output is unchanged.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, known: NumberParameters) -> None:
        super().__init__()
        values = torch.tensor(known.label_values or [], dtype=torch.float64)
        scaled = known.standardize and len(values) > 0
        centre = values.mean() if scaled else torch.zeros(())
        spread = values.std(correction=0) if scaled else torch.ones(())
        self.register_buffer("centre", centre.float(), persistent=False)
        self.register_buffer("spread", (spread if spread > 0 else torch.ones(())).float(), persistent=False)

    def forward(self, output_B1: Tensor) -> Tensor:
        """Return numbers (B,) for outputs (B, 1)."""
        return output_B1.squeeze(-1) * self.spread + self.centre


class CnnRegression(ClsCnn):
    """As `cls_cnn`, with one number as output."""

    class Parameters(NumberParameters, ClsCnn.Parameters):
        """Keys of `cnn_regression`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters.model_copy(update={"num_classes": 1}))
        self.units = Units(parameters)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return numbers (B,) for tokens (B, T); mask (B, T) is true at real tokens."""
        numbers: Tensor = self.units(super().forward(tokens, mask))
        return numbers


class RE2Regression(RE2):
    """As `re2`, with one number as output."""

    class Parameters(NumberParameters, RE2.Parameters):
        """Keys of `re2_regression`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters.model_copy(update={"num_classes": 1}))
        self.units = Units(parameters)

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Return numbers (B,) for tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        numbers: Tensor = self.units(super().forward(tokens1, mask1, tokens2, mask2))
        return numbers
