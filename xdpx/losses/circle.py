"""Circle loss: similar pairs are to lie above dissimilar ones, and each is pushed the harder the further it is off."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from xdpx.losses.base import Gathered
from xdpx.losses.classification_parameters import CircleParameters
from xdpx.losses.cross_entropy import CrossEntropy


class Circle(CrossEntropy):
    """All positive rows of a batch against all negative ones, by their similarity s in [0, 1].

    log(1 + sum_n exp(scale a_n (s_n - margin)) sum_p exp(-scale a_p (s_p - 1 + margin))), with a_n = max(0, s_n +
    margin) and a_p = max(0, 1 + margin - s_p), times the rows of the batch. s is the probability of class 1.

    Source: Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR 2020, equations 4
    and 6 to 8.
    """

    class Parameters(CircleParameters):
        """Keys of `circle` and `circle_siamese`."""

    parameters: Parameters

    compares_rows = True
    metric_names = {**CrossEntropy.metric_names, "threshold": None}

    def similarity(self, logits: Tensor) -> Tensor:
        """Give s in [0, 1] for each row, (B,), of logits (B, 2)."""
        return logits.softmax(dim=-1)[:, 1]

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss of the batch times its rows, in nats."""
        known, similarity = self.parameters, self.similarity(logits)
        weight_n = (similarity.detach() + known.margin).clamp(min=0)
        weight_p = (1 + known.margin - similarity.detach()).clamp(min=0)
        high_n = known.scale * weight_n * (similarity - known.margin)
        low_p = -known.scale * weight_p * (similarity - 1 + known.margin)
        positive, nothing = target == 1, torch.finfo(similarity.dtype).min / 4
        among_n = high_n.masked_fill(positive, nothing).logsumexp(dim=0)
        among_p = low_p.masked_fill(~positive, nothing).logsumexp(dim=0)
        loss = functional.softplus(among_n + among_p) * len(target)
        return loss + known.ce_weight * super().objective(logits, target) if known.ce_weight else loss

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Give the logarithms of 1 - s and s, (B, 2)."""
        similarity = self.similarity(logits)
        return torch.stack([1 - similarity, similarity], dim=1).clamp(min=1e-7).log()

    def predict(self, prob: Tensor) -> Tensor:
        """Give 1 where the similarity reaches the threshold."""
        return (prob[:, 1] >= self.parameters.predict_threshold).long()

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows on the right side of the threshold."""
        return (self.predict(self.probabilities(logits)) == target).sum()

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give what cross-entropy gives, and `threshold`: that of the best F1."""
        found = super().metrics(gathered)
        return {**found, "threshold": found["best_threshold"]}


class CircleSiamese(Circle):
    """The same for a model that encodes two texts apart and gives the cosine of their vectors, (B,) or (B, 1)."""

    reads_class_logits = False

    def similarity(self, logits: Tensor) -> Tensor:
        """Give (1 + cosine) / 2."""
        return (1 + logits.reshape(len(logits))) / 2
