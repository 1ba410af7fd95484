"""Binary cross-entropy: one yes/no question per class, weighted equally or by difficulty (GHM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from xdpx import metrics
from xdpx.config import parameters as declare
from xdpx.losses.arithmetic import DeviceConstant, tally
from xdpx.losses.base import Gathered
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.parameters import BCEParameters
from xdpx.metrics import ClassScore


class BinaryCrossEntropy(CrossEntropy):
    """One-versus-rest classification.

    With one label per row, class 0 means "none": it has no question of its own, and is predicted if no other class
    reaches its threshold. With several labels per row (targets (B, C) of 0 and 1) every class has a question.
    """

    class Parameters(BCEParameters):
        """Keys of `bce`."""

    parameters: Any

    metric_names = CrossEntropy.metric_names
    reads_softmax = False

    asks_each_class: ClassVar[bool] = True
    """True: one sigmoid per class."""
    of_any_size: ClassVar[bool] = True

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        given = parameters.predict_threshold
        self._thresholds = None if given is None else DeviceConstant(given)

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum over rows and questions, in nats."""
        return self.answers(logits, target).sum()

    def answers(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of every question, (B, Q), times the weight of its class."""
        asked, wanted = self.questions(logits, target)
        each = functional.binary_cross_entropy_with_logits(asked, wanted, reduction="none")
        weights = self.weights(logits)
        return each if weights is None else each * weights[-asked.shape[1] :]

    def questions(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the questions and their right answers, (B, Q) each; Q is C, or C - 1 without class 0."""
        if target.dim() == 2:
            return logits, target.to(logits.dtype)
        return logits[:, 1:], functional.one_hot(target, logits.shape[1])[:, 1:].to(logits.dtype)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class, (B, C); with one label, that of class 0 is 1 - the largest other."""
        prob = logits.sigmoid()
        if self.parameters.several_labels:
            return prob
        return torch.cat([1 - prob[:, 1:].amax(dim=1, keepdim=True), prob[:, 1:]], dim=1)

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the distance of two passes in nats: (KL(p|q) + KL(q|p)) / 2, summed over rows and questions."""
        gap = (first.sigmoid() - second.sigmoid()) * (first - second)
        return (gap if self.parameters.several_labels else gap[:, 1:]).sum() / 2.0

    def predict(self, prob: Tensor) -> Tensor:
        """Return the class of each row, (B,); with several labels, a bool for each label, (B, C)."""
        several = self.parameters.several_labels
        asked = prob if several else prob[:, 1:]
        margin = asked - (0.5 if self._thresholds is None else self._thresholds.like(asked))
        if several:
            return margin >= 0
        best, choice = margin.max(dim=1)
        return torch.where(best >= 0, choice + 1, 0)

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows with the right class, or with exactly the right labels."""
        found = self.predict(self.probabilities(logits))
        right = found == target.to(found.dtype)
        return (right.all(dim=1) if right.dim() == 2 else right).sum()

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per row), acc (of whole rows), precision, recall, f1; auc of two classes."""
        if not self.parameters.several_labels:
            return super().metrics(gathered)
        pred, target = np.asarray(gathered["pred"]).astype(bool), np.asarray(gathered["target"]).astype(bool)
        known = self.parameters
        found = {"loss": self.mean_loss(gathered), "acc": float((pred == target).all(axis=1).mean())}
        found["precision"], found["recall"], found["f1"] = metrics.several_labels(
            target, pred, average=known.average, negative_classes=known.negative_classes_in_f1
        )
        return found

    def each_class(self, gathered: Gathered, labels: Sequence[str] | None) -> list[ClassScore]:
        """Return precision, recall and F1 of each class; with several labels each label counts separately."""
        if not self.parameters.several_labels:
            return super().each_class(gathered, labels)
        pred, target = np.asarray(gathered["pred"]).astype(bool), np.asarray(gathered["target"]).astype(bool)
        return metrics.each_class((pred & target).sum(axis=0), pred.sum(axis=0), target.sum(axis=0), labels)


class GHMClassification(BinaryCrossEntropy):
    """Weights each answer inversely to the number of answers with a similar gradient size g = |p - y|.

    The weights of a batch add up to its number of answers. Held-out data are scored by plain binary cross-entropy.
    Answers are counted per micro-batch, so its size matters.

    Source: Li, Liu and Wang, "Gradient Harmonized Single-stage Detector", AAAI 2019, equations 6 to 10; a range that
    was never seen starts with the full count of its first batch, not with a share of it.
    """

    class Parameters(BinaryCrossEntropy.Parameters):
        """Keys of `ghmc`."""

        bins: int = declare.param(10, ge=1, doc="Number of difficulty bins in which rows are counted.", alters="loss")
        momentum: float = declare.param(
            0.75, ge=0, lt=1, doc="Share of the counts that is kept from batch to batch.", alters="loss"
        )

    parameters: Parameters

    compares_rows = True

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._counts = torch.zeros(parameters.bins)  # of answers in each range, averaged over batches

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the weighted sum over rows and questions, in nats; updates the counts."""
        each = self.answers(logits, target)
        return (each * self._harmonised(*self.questions(logits.detach(), target))).sum()

    def held_out_objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum of plain binary cross-entropy, in nats."""
        return super().objective(logits, target)

    def _harmonised(self, asked: Tensor, wanted: Tensor) -> Tensor:
        """Update the counts; return the weight of each answer, (B, Q)."""
        known = self.parameters
        size = (asked.sigmoid() - wanted).abs()
        index = (size * known.bins).long().clamp(0, known.bins - 1)
        here = tally(index.flatten(), known.bins).to(asked.dtype)
        before = self._counts.to(here)
        mixed = torch.where(before > 0, known.momentum * before + (1 - known.momentum) * here, here)
        self._counts = torch.where(here > 0, mixed, before)
        inverse = torch.where(here > 0, 1 / self._counts.clamp(min=1e-12), 0)
        weights = inverse[index]
        return weights * (weights.numel() / weights.sum().clamp(min=1e-12))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"counts": self._counts}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the counts."""
        self._counts = saved["counts"].clone()
