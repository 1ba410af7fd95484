"""One question per class: is the row of it, or not?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from xdpx.losses import metrics
from xdpx.losses.base import Gathered, loss_in_bits
from xdpx.losses.classification_parameters import BCEParameters
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.on_device import Constant


class BinaryCrossEntropy(CrossEntropy):
    """Each class against the rest.

    With one label per row, class 0 means none: it has no question of its own, and is predicted where no other class
    reaches its threshold. With several labels per row (targets (B, C) of 0 and 1) every class has its question.
    """

    class Parameters(BCEParameters):
        """Keys of `bce`."""

    parameters: Any

    metric_names = CrossEntropy.metric_names

    asks_each_class: ClassVar[bool] = True
    """Probabilities are those of a sigmoid for each class."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        given = parameters.predict_threshold
        self._thresholds = None if given is None else Constant(given)

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the sum over rows and questions, in nats."""
        return self.answers(logits, target).sum()

    def answers(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss of every question, (B, Q), times the weight of its class."""
        asked, wanted = self.questions(logits, target)
        each = functional.binary_cross_entropy_with_logits(asked, wanted, reduction="none")
        weights = self.weights(logits)
        return each if weights is None else each * weights[-asked.shape[1] :]

    def questions(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits of the questions and their right answers, (B, Q) each; Q is C, or C - 1 without class 0."""
        if target.dim() == 2:
            return logits, target.to(logits.dtype)
        return logits[:, 1:], functional.one_hot(target, logits.shape[1])[:, 1:].to(logits.dtype)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Give the probability of each class, (B, C); that of class 0 is what the likeliest other leaves over."""
        prob = logits.sigmoid()
        if self.parameters.several_labels:
            return prob
        return torch.cat([1 - prob[:, 1:].amax(dim=1, keepdim=True), prob[:, 1:]], dim=1)

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Give how far the answers of two passes are apart: (KL(p|q) + KL(q|p)) / 2, summed over questions."""
        gap = (first.sigmoid() - second.sigmoid()) * (first - second)
        return (gap if self.parameters.several_labels else gap[:, 1:]).sum() / 2.0

    def predict(self, prob: Tensor) -> Tensor:
        """Give the class of each row, (B,); with several labels whether the row has each, (B, C)."""
        several = self.parameters.several_labels
        asked = prob if several else prob[:, 1:]
        margin = asked - (0.5 if self._thresholds is None else self._thresholds.like(asked))
        if several:
            return margin >= 0
        best, choice = margin.max(dim=1)
        return torch.where(best >= 0, choice + 1, 0)

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows with the right class, or with all their labels and no other."""
        found = self.predict(self.probabilities(logits))
        right = found == target.to(found.dtype)
        return (right.all(dim=1) if right.dim() == 2 else right).sum()

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per row), acc (of whole rows), precision, recall, f1; auc of two classes."""
        if not self.parameters.several_labels:
            return super().metrics(gathered)
        pred, target = np.asarray(gathered["pred"]).astype(bool), np.asarray(gathered["target"]).astype(bool)
        known = self.parameters
        found = {"loss": loss_in_bits(gathered), "acc": float((pred == target).all(axis=1).mean())}
        found["precision"], found["recall"], found["f1"] = metrics.several_labels(
            target, pred, average=known.f1_average, negative_classes=known.negative_classes_in_f1
        )
        return found
