"""Cross-entropy that looks at the rows which are still wrong."""

from __future__ import annotations

from torch import Tensor

from xdpx.losses.classification_parameters import FocalParameters
from xdpx.losses.cross_entropy import CrossEntropy


class Focal(CrossEntropy):
    """The sum of -(1 - p)^gamma log p, where p is the probability of the right class; `class_weights` are its alpha.

    Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 5, over a softmax.
    """

    class Parameters(FocalParameters):
        """Keys of `focal`."""

    parameters: Parameters

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the sum over rows in nats."""
        log_prob = self.log_probabilities(logits).gather(1, target[:, None])[:, 0]
        # From below, so that the slope of the power stays finite where a row is right to the last digit.
        wrong = (1 - log_prob.exp()).clamp(min=1e-7)
        each = -(wrong**self.parameters.focal_gamma) * log_prob
        weights = self.weights(logits)
        return each.sum() if weights is None else (each * weights[target]).sum()
