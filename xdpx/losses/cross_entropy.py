"""Cross-entropy over classes, with accuracy, precision, recall, F1 and the area under the curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.losses import metrics
from xdpx.losses.base import BITS_PER_NAT, Batch, Gathered, Loss, loss_in_bits
from xdpx.losses.divergence import symmetric_divergence
from xdpx.losses.metrics.named import CLASSIFICATION, best_threshold, compute
from xdpx.losses.on_device import Constant
from xdpx.losses.parameters import CrossEntropyParameters


class CrossEntropy(Loss):
    """Negative log likelihood of the right class; with R-Drop two passes must also agree with one another.

    Source of R-Drop: Liang et al., "R-Drop: Regularized Dropout for Neural Networks", NeurIPS 2021, with the
    likelihood term averaged over the two passes.
    """

    class Parameters(CrossEntropyParameters):
        """What is trained and how the scores count."""

    parameters: Any

    reads_class_logits = True
    metric_names = {
        **dict.fromkeys(("loss", "acc", "precision", "recall", "f1")),
        "auc": ("num_classes", "is", 2),
        **CLASSIFICATION,
    }

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        given = parameters.class_weights
        self._class_weights = None if given is None else Constant(given)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over the rows of the batch, its number of rows, and how many are predicted right."""
        logits = model(**batch["net_input"]).float()
        target = batch["target"]
        loss = self.objective(logits, target)
        facts = {"correct": self.correct(logits.detach(), target)}
        if self.parameters.use_r_dropout:
            loss, more = self._with_second_pass(model, batch, logits, loss)
            facts.update(more)
        return loss, len(target), facts

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the sum over rows, in nats, of what is minimised for logits (B, C) and classes (B). To be overridden."""
        log_prob = self.log_probabilities(logits)
        return functional.nll_loss(log_prob, target, weight=self.weights(logits), reduction="sum")

    def held_out_objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the same for held-out data; an objective that learns from what it sees has another for them."""
        return self.objective(logits, target)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Give the logarithm of the probability of each class, (B, C). To be overridden."""
        return logits.log_softmax(dim=-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Give the probability of each class, (B, C)."""
        return self.log_probabilities(logits).exp()

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Give how far two passes are apart, summed over rows: (KL(p|q) + KL(q|p)) / 2 in nats."""
        return symmetric_divergence(self.log_probabilities(first), self.log_probabilities(second))

    def weights(self, logits: Tensor) -> Tensor | None:
        """Give `class_weights` where the logits are; None for equal ones."""
        return None if self._class_weights is None else self._class_weights.like(logits)

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows that are predicted right in training."""
        return (logits.argmax(dim=-1) == target).sum()

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give prob (B, C), pred (B), and for labelled batches target (B), loss_sum and count."""
        logits = model(**batch["net_input"]).float()
        prob = self.probabilities(logits)
        found = {"prob": prob, "pred": self.predict(prob)}
        if "query_id" in batch:
            found["query_id"] = batch["query_id"]
        if "target" in batch:
            target = batch["target"]
            loss_sum = self.held_out_objective(logits, target)
            found |= {"target": target, "loss_sum": loss_sum, "count": torch.tensor(len(target))}
        return found

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per row), acc, precision, recall, f1; auc of two classes; with a threshold the best one."""
        prob, pred, target = (np.asarray(gathered[name]) for name in ("prob", "pred", "target"))
        found = {"loss": loss_in_bits(gathered)}
        kept = self._scored_rows(gathered, prob)
        table = metrics.confusion(target, pred, prob.shape[1])
        found["acc"] = metrics.accuracy(table)
        if kept is not None:
            table = metrics.confusion(target[kept], pred[kept], prob.shape[1])
        known = self.parameters
        found["precision"], found["recall"], found["f1"] = metrics.precision_recall_f1(
            table, average=known.f1_average, negative_classes=known.negative_classes_in_f1
        )
        if prob.shape[1] == 2:
            found["auc"] = metrics.area_under_curve(target, prob[:, 1])
        if known.predict_threshold is not None:
            cut = best_threshold(prob, target, known.negative_classes_in_f1)
            found["best_f1"], found["best_threshold"] = cut.f1, cut.threshold
        return found

    def metric(self, name: str, gathered: Gathered) -> float | None:
        """Compute one more metric by its name; negative classes are left out of averages."""
        return compute(name, gathered, negative_classes=self.parameters.negative_classes_in_f1)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits) and acc of the training batches; with R-Drop also its two parts."""
        found = super().train_metrics(facts)
        count = facts["count"]
        found["acc"] = metrics.ratio(facts["correct"], count, empty=float("nan"))
        for name in ("ce_loss", "kl_loss"):
            if name in facts:
                found[name] = metrics.ratio(facts[name] * BITS_PER_NAT, count, empty=float("nan"))
        return found

    def _with_second_pass(
        self, model: nn.Module, batch: Batch, first: Tensor, first_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        second = model(**batch["net_input"]).float()
        likelihood = (first_loss + self.objective(second, batch["target"])) / 2.0
        disagreement = self.disagreement(first, second)
        facts = {"ce_loss": likelihood.detach(), "kl_loss": disagreement.detach()}
        return likelihood + self.parameters.kl_alpha * disagreement, facts

    def predict(self, prob: Tensor) -> Tensor:
        """Give the class of each row, (B,), from probabilities (B, C)."""
        threshold = self.parameters.predict_threshold
        if threshold is None:
            return prob.argmax(dim=-1)
        negative = self.parameters.negative_classes_in_f1 or [0]
        others = prob.clone()
        others[:, negative] = -1.0
        best, choice = others.max(dim=-1)
        return torch.where(best >= threshold, choice, choice.new_full((), negative[0]))

    def _scored_rows(self, gathered: Gathered, prob: NDArray[Any]) -> NDArray[np.int64] | None:
        """Give the rows that count in precision, recall and F1; None for all."""
        if not self.parameters.query_level_f1:
            return None
        if "query_id" not in gathered:
            problem = "is true, but the data holds no query ids."
            raise ConfigError(THIS_RUN, [Fault("query_level_f1", problem, "Set it to false.")])
        return metrics.best_row_per_query(np.asarray(gathered["query_id"]), prob[:, -1])
