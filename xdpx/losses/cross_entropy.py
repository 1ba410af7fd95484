"""Classification losses: cross-entropy, and variants with other probabilities, smoothed labels or weighted rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx import metrics
from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.logger import log
from xdpx.losses.arithmetic import DeviceConstant, symmetric_divergence
from xdpx.losses.base import Batch, Gathered, Loss, output_of
from xdpx.losses.graded import refuse_other_grades, tell_of_odd_grades
from xdpx.losses.parameters import CrossEntropyParameters, TaylorParameters
from xdpx.metrics.classes import ClassScore, Counts
from xdpx.metrics.judging import Judged
from xdpx.metrics.named import CLASSIFICATION, OF_GRADES, about_one_class, best_threshold, compute, ranked
from xdpx.tokenizers.target_map import number_of

MANY_VALUES = 20
"""Number of labels from which numbers with fractions are rather values than names of classes."""


def class_logits_of(model: nn.Module, batch: Batch, num_classes: int | None) -> Tensor:
    """Return what a model gives for a batch, in float32: one number for each row and class, (B, C).

    Raises:
        ConfigError: it gives something else, such as numbers that would be broadcast.
    """
    logits = output_of(model, batch)
    classes = num_classes or logits.shape[-1]
    rows = len(batch["target"]) if "target" in batch else len(logits)
    if logits.shape != (rows, classes):
        name = type(getattr(model, "module", model)).__name__
        problem = f"'{name}' returns {tuple(logits.shape)} for {rows} rows and {classes} classes."
        remedy = f"Return logits of shape ({rows}, {classes}): a row of numbers, one for each class, per text."
        raise refusal("model", problem, remedy)
    return logits


class CrossEntropy(Loss):
    """Negative log likelihood of the right class; with R-Drop two passes must also agree with one another.

    Source of R-Drop: Liang et al., "R-Drop: Regularized Dropout for Neural Networks", NeurIPS 2021, with the
    likelihood term averaged over the two passes.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(CrossEntropyParameters):
        """Keys of `cross_entropy`."""

    parameters: Any

    reads_class_logits = True
    reads_softmax = True
    row_functions = ("probabilities",)
    metric_names = {
        **dict.fromkeys(("loss", "acc", "precision", "recall", "f1")),
        "auc": ("num_classes", "is", 2),
        **CLASSIFICATION,
    }

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        given = parameters.class_weights
        self._class_weights = None if given is None else DeviceConstant(given)

    @property
    def average(self) -> str:
        """How classes are averaged in precision, recall and F1."""
        return str(self.parameters.average)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the rows of the batch, their number, and how many are predicted right."""
        logits, target = self.logits(model, batch), batch["target"]
        loss = self.objective(logits, target)
        facts = {"correct": self.correct(logits.detach(), target)}
        if self.parameters.use_r_dropout:
            loss, more = self._with_second_pass(model, batch, logits, loss)
            facts.update(more)
        return loss, len(target), facts

    def refuse_labels(self, names: Sequence[str]) -> None:
        """Warn of labels that are values rather than classes; none is refused."""
        values = [number_of(name) for name in names]
        if len(names) >= MANY_VALUES and None not in values and any(value % 1 for value in values if value):
            log.warning(
                f"loss: takes the numbers {names[0]}, {names[1]}, ... as {len(names):,} classes. To predict numbers, "
                "use loss: mse and a model for them, as in families/cnn_regression.",
                once=True,
            )

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return what the model gives for a batch: (B, C), unless `reads_class_logits` is false.

        Raises:
            ConfigError: logits of classes are not one number for each row and class.
        """
        if not self.reads_class_logits:
            return output_of(model, batch)
        return class_logits_of(model, batch, self.parameters.num_classes)

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the objective in nats, summed over rows, for logits (B, C) and classes (B). May be overridden."""
        log_prob = self.log_probabilities(logits)
        return functional.nll_loss(log_prob, target, weight=self.weights(logits), reduction="sum")

    def held_out_objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the same for held-out data; overridden by objectives that update a state from the batches."""
        return self.objective(logits, target)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the probability of each class, (B, C). To be overridden."""
        return logits.log_softmax(dim=-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class, (B, C)."""
        return self.log_probabilities(logits).exp()

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the distance of two passes: (KL(p|q) + KL(q|p)) / 2 in nats, summed over rows."""
        return symmetric_divergence(self.log_probabilities(first), self.log_probabilities(second))

    def weights(self, logits: Tensor) -> Tensor | None:
        """Return `class_weights` on the device of the logits; None for equal weights."""
        return None if self._class_weights is None else self._class_weights.like(logits)

    def correct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Count the rows that are predicted right in training."""
        return (logits.argmax(dim=-1) == target).sum()

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return prob (B, C), pred (B), and for labelled batches target (B), loss_sum and count."""
        logits = self.logits(model, batch)
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
        """Return loss (nats per row), acc; precision, recall, f1 in the average that `f1_average` says, else macro.

        Also auc of two classes, and with a threshold the best one.
        """
        prob, pred, target = (np.asarray(gathered[name]) for name in ("prob", "pred", "target"))
        found = {"loss": self.mean_loss(gathered)}
        found["acc"] = metrics.accuracy(metrics.confusion(target, pred, prob.shape[1]))
        known = self.parameters
        found["precision"], found["recall"], found["f1"] = metrics.precision_recall_f1(
            self._table(gathered), average=known.average, negative_classes=known.negative_classes_in_f1
        )
        if prob.shape[1] == 2:
            found["auc"] = metrics.area_under_curve(target, prob[:, 1])
        if known.predict_threshold is not None:
            cut = best_threshold(prob, target, known.negative_classes_in_f1)
            found["best_f1"], found["best_threshold"] = cut.f1, cut.threshold
        return found

    def each_class(self, gathered: Gathered, labels: Sequence[str] | None) -> list[ClassScore]:
        """Return precision, recall and F1 of each class, of the rows that count in F1."""
        table = self._table(gathered)
        return metrics.each_class(np.diag(table), table.sum(axis=0), table.sum(axis=1), labels)

    def judged(self, gathered: Gathered, labels: Sequence[str] | None) -> Judged | None:
        """Return an assessment of each row, with one label or several; None if rows have no label."""
        if not {"target", "pred", "prob"} <= set(gathered):
            return None
        target, pred, prob = (np.asarray(gathered[name]) for name in ("target", "pred", "prob"))
        judge = metrics.judge_several if target.ndim == 2 else metrics.judge_classes
        return judge(target, pred, prob, labels)

    def _table(self, gathered: Gathered) -> Counts:
        """Count the rows that count in F1 by (target, prediction)."""
        prob, pred, target = (np.asarray(gathered[name]) for name in ("prob", "pred", "target"))
        kept = self._scored_rows(gathered, prob)
        if kept is not None:
            target, pred = target[kept], pred[kept]
        return metrics.confusion(target, pred, prob.shape[1])

    def keys_by_class(self) -> list[str]:
        """Return the keys that are set and whose values go by the numbers of the classes."""
        return [
            key
            for key in ("class_weights", "negative_classes_in_f1", "predict_threshold")
            if getattr(self.parameters, key, None)
        ]

    def about_one_class(self, names: Iterable[str], num_classes: int) -> dict[str, int]:
        """Return {metric: number of the class} of those that would be others if classes were numbered otherwise."""
        known = self.parameters
        return about_one_class(
            names, num_classes, self.average, known.negative_classes_in_f1, has_grades=known.label_values is not None
        )

    def refuse_grades(self, names: Iterable[str], labels: Sequence[str]) -> None:
        """Raise ConfigError if a metric of queries takes classes for grades, but labels are other numbers.

        A warning of more than two labels that are no numbers (which of two it is about is logged anyway), and of grades
        that are all relevant, or negative.
        """
        names = list(names)
        tell_of_odd_grades(names, self.parameters.label_values)
        metric = next(filter(OF_GRADES.fullmatch, names), None)
        numbers = None not in map(number_of, labels)
        if metric is not None and self.parameters.label_values is None and (numbers or len(labels) > 2):
            refuse_other_grades(labels, metric=metric)

    def metric(self, name: str, gathered: Gathered) -> float | None:
        """Return one more metric by its name; negative classes are left out of averages."""
        known = self.parameters
        return compute(name, gathered, negative_classes=known.negative_classes_in_f1, label_values=known.label_values)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats) and acc of the training batches; with R-Drop also its two parts."""
        found = super().train_metrics(facts)
        count = facts["count"]
        found["acc"] = metrics.ratio(facts["correct"], count, empty=float("nan"))
        for name in ("ce_loss", "kl_loss"):
            if name in facts:
                found[name] = self.in_unit(facts[name], count)
        return found

    def _with_second_pass(
        self, model: nn.Module, batch: Batch, first: Tensor, first_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        second = self.logits(model, batch)
        self.tell_of_equal_passes(first, second)
        likelihood = (first_loss + self.objective(second, batch["target"])) / 2.0
        disagreement = self.disagreement(first, second)
        facts = {"ce_loss": likelihood.detach(), "kl_loss": disagreement.detach()}
        return likelihood + self.parameters.kl_alpha * disagreement, facts

    def predict(self, prob: Tensor) -> Tensor:
        """Return the class of each row, (B,), from probabilities (B, C)."""
        threshold = self.parameters.predict_threshold
        if threshold is None:
            return prob.argmax(dim=-1)
        negative = self.parameters.negative_classes_in_f1 or [0]
        others = prob.clone()
        others[:, negative] = -1.0
        best, choice = others.max(dim=-1)
        return torch.where(best >= threshold, choice, choice.new_full((), negative[0]))

    def _scored_rows(self, gathered: Gathered, prob: NDArray[Any]) -> NDArray[np.int64] | None:
        """Return the rows that count in precision, recall and F1; None for all."""
        if not self.parameters.query_level_f1:
            return None
        if "query_id" not in gathered:
            problem = "is true, but the data contains no query ids."
            raise refusal("query_level_f1", problem, "Set it to false.")
        grade, score = ranked(prob, np.asarray(gathered["target"]), self.parameters.label_values)
        return metrics.best_row_per_query(np.asarray(gathered["query_id"]), grade, score)


class LabelSmoothCrossEntropy(CrossEntropy):
    """The target is 1 - smoothing for the right class, plus smoothing / C for each of the C classes.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7.
    """

    class Parameters(CrossEntropy.Parameters):
        """Keys of `label_smooth_ce`."""

        smoothing: float = declare.param(
            0.1, ge=0, lt=1, doc="Share of the probability that is spread evenly over all classes.", alters="loss"
        )

    parameters: Parameters

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum over rows in nats; the weight of a row is that of its class."""
        uniform = -self.log_probabilities(logits).mean(dim=-1)
        weights = self.weights(logits)
        if weights is not None:
            uniform = uniform * weights[target]
        share = self.parameters.smoothing
        return (1 - share) * super().objective(logits, target) + share * uniform.sum()


class Focal(CrossEntropy):
    """The sum of -(1 - p)^gamma log p, where p is the probability of the right class; `class_weights` are its alpha.

    Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 5, over a softmax.
    """

    class Parameters(CrossEntropy.Parameters):
        """Keys of `focal`."""

        focal_gamma: float = declare.param(
            2.0, ge=0, doc="How strongly rows that are already right are down-weighted; 0: not at all.", alters="loss"
        )

    parameters: Parameters

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the sum over rows in nats."""
        log_prob = self.log_probabilities(logits).gather(1, target[:, None])[:, 0]
        # Clamped so that the gradient of the power stays finite where a probability rounds to 1.
        wrong = (1 - log_prob.exp()).clamp(min=1e-7)
        each = -(wrong**self.parameters.focal_gamma) * log_prob
        weights = self.weights(logits)
        return each.sum() if weights is None else (each * weights[target]).sum()


class TaylorCrossEntropy(CrossEntropy):
    """Probabilities are proportional to 1 + x + x^2/2! + ... + x^n/n!, which is positive for even n.

    Source: de Brebisson and Vincent, "An Exploration of Softmax Alternatives Belonging to the Spherical Loss Family",
    ICLR 2016, section 3.2, for n = 2; Banerjee et al., "Exploring Alternatives to Softmax Function", 2020, equation 3.
    """

    class Parameters(TaylorParameters):
        """Keys of `taylor_ce`."""

    parameters: Parameters

    reads_softmax = False

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the normalised series, (B, C)."""
        series, term = torch.ones_like(logits), torch.ones_like(logits)
        for power in range(1, self.parameters.taylor_n + 1):
            term = term * logits / power
            series = series + term
        return series.log() - series.sum(dim=-1, keepdim=True).log()
