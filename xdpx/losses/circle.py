"""Circle loss: similar pairs should score above dissimilar ones; the further off a pair, the larger its weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from xdpx.config.faults import refusal
from xdpx.logger import log
from xdpx.losses.base import Gathered
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.parameters import CircleParameters
from xdpx.metrics.named import TO_ORDER
from xdpx.tokenizers.target_map import number_of


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
    within_batch = ("loss",)
    reads_softmax = False
    metric_names = {**CrossEntropy.metric_names, "threshold": None}

    def similarity(self, logits: Tensor) -> Tensor:
        """Return s in [0, 1] for each row, (B,), of logits (B, 2)."""
        return logits.softmax(dim=-1)[:, 1]

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the batch times its rows, in nats."""
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
        """Return the logarithms of 1 - s and s, (B, 2)."""
        similarity = self.similarity(logits)
        return torch.stack([1 - similarity, similarity], dim=1).clamp(min=1e-7).log()

    def predict(self, prob: Tensor) -> Tensor:
        """Return 1 where the similarity reaches the threshold."""
        return (prob[:, 1] >= self.parameters.predict_threshold).long()

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows on the right side of the threshold."""
        return (self.predict(self.probabilities(logits)) == target).sum()

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return the metrics of cross-entropy, and `threshold`, which gives the best F1."""
        found = super().metrics(gathered)
        return {**found, "threshold": found["best_threshold"]}


class CircleSiamese(Circle):
    """Circle loss for a model that encodes two texts apart and returns the cosine of their vectors, (B,) or (B, 1).

    For a model that returns the vectors, (B, 2, H), such as `simcse`, it computes the cosine.
    """

    reads_class_logits = False

    def refuse_labels(self, names: Sequence[str]) -> None:
        """Log which label stands for alike; a warning if it is the lower of two numbers."""
        super().refuse_labels(names)
        if len(names) != 2:
            return
        apart, alike = names
        values = number_of(apart), number_of(alike)
        line = f"loss: pairs labelled '{alike}' (class 1) get similar vectors, and those labelled '{apart}' do not"
        if values[0] is not None and values[1] is not None and values[1] < values[0]:
            log.warning(f"{line}. To exchange them, preprocess with target_type: index, or special_targets.", once=True)
        else:
            log.info(f"{line} ({TO_ORDER})", once=True)

    def similarity(self, logits: Tensor) -> Tensor:
        """Return (1 + cosine) / 2.

        Raises:
            ConfigError: the model returns neither cosines nor the vectors of two texts.
        """
        if logits.dim() == 3 and logits.shape[1] == 2:
            logits = functional.cosine_similarity(logits[:, 0], logits[:, 1], dim=-1)
        if logits.numel() != logits.shape[0]:
            problem = f"is 'circle_siamese', but the model gives {tuple(logits.shape)} for {len(logits)} pairs."
            remedy = "Set prediction: cosine (dssm, sbert_nli), use model: simcse, or loss: circle."
            raise refusal("loss", problem, remedy)
        return (1 + logits.flatten()) / 2  # not by its length, which torch.export would make a constant
