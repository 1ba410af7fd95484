"""Cross-entropy over a softmax whose exponential is a short series."""

from __future__ import annotations

import torch
from torch import Tensor

from xdpx.losses.classification_parameters import TaylorParameters
from xdpx.losses.cross_entropy import CrossEntropy


class TaylorCrossEntropy(CrossEntropy):
    """Probabilities are proportional to 1 + x + x^2/2! + ... + x^n/n!, which is positive for even n.

    Source: de Brebisson and Vincent, "An Exploration of Softmax Alternatives Belonging to the Spherical Loss Family",
    ICLR 2016, section 3.2, for n = 2; Banerjee et al., "Exploring Alternatives to Softmax Function", 2020, equation 3.
    """

    class Parameters(TaylorParameters):
        """Keys of `taylor_ce`."""

    parameters: Parameters

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Give the logarithm of the normalised series, (B, C)."""
        series, term = torch.ones_like(logits), torch.ones_like(logits)
        for power in range(1, self.parameters.taylor_n + 1):
            term = term * logits / power
            series = series + term
        return series.log() - series.sum(dim=-1, keepdim=True).log()
