"""Cross-entropy with smoothed labels."""

from __future__ import annotations

from torch import Tensor

from xdpx.losses.classification_parameters import LabelSmoothParameters
from xdpx.losses.cross_entropy import CrossEntropy


class LabelSmoothCrossEntropy(CrossEntropy):
    """The right class is to get 1 - smoothing, and all C classes together the rest, smoothing / C each.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7.
    """

    class Parameters(LabelSmoothParameters):
        """Keys of `label_smooth_ce`."""

    parameters: Parameters

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the sum over rows in nats; the weight of a row is that of its class."""
        uniform = -self.log_probabilities(logits).mean(dim=-1)
        weights = self.weights(logits)
        if weights is not None:
            uniform = uniform * weights[target]
        share = self.parameters.smoothing
        return (1 - share) * super().objective(logits, target) + share * uniform.sum()
