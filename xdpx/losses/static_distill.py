"""Distillation from the logits of a teacher, precomputed or on-line. B rows, C classes, Q questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.base import Batch
from xdpx.losses.bce import BinaryCrossEntropy
from xdpx.losses.cross_entropy import CrossEntropy, class_logits_of
from xdpx.losses.parameters import BCEParameters, CrossEntropyParameters, FromTeacherParameters
from xdpx.losses.taught import Taught, refuse_other_logits
from xdpx.metrics import ratio


class FromTeacher(Taught, CrossEntropy):
    """T^2 KL(teacher | student) of logits divided by the temperature T, plus `gold_loss_lambda` times the plain loss.

    Held-out data are scored by the plain loss alone, with or without a teacher's logits.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.
    """

    parameters: Any

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the rows of the batch, their number, and how many are predicted right.

        Raises:
            ConfigError: a row of the training data has no logits of a teacher, or another number of them, or it has no
                label, but labels count.
        """
        logits, teacher, share = self.logits(model, batch), self.teacher_logits(batch), self.parameters.gold_loss_lambda
        refuse_other_logits(logits, teacher)
        distilled = self.divergence(logits, teacher.float())
        facts = {"kl_loss": distilled.detach()}
        if "target" not in batch:
            if share:
                problem = f"is {share}, but a row of the training data has no label."
                raise refusal("gold_loss_lambda", problem, "Set it to 0, or label all rows.")
            return distilled, len(logits), facts | {"unlabelled": distilled.new_tensor(len(logits))}
        gold = self.objective(logits, batch["target"])
        facts |= {"correct": self.correct(logits.detach(), batch["target"]), "ce_loss": gold.detach()}
        return distilled + share * gold, len(logits), facts

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the student's logits of classes, (B, C). Raises ConfigError if it gives another shape."""
        return class_logits_of(model, batch, self.parameters.num_classes)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss, kl_loss, and over the labelled rows alone acc and ce_loss, of the training batches."""
        found = super().train_metrics({"correct": 0.0, **facts})
        labelled = facts["count"] - facts.get("unlabelled", 0.0)
        found["acc"] = ratio(facts.get("correct", 0.0), labelled, empty=float("nan"))
        return found | ({"ce_loss": self.in_unit(facts["ce_loss"], labelled)} if "ce_loss" in facts else {})

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return the teacher's logits, under the name that precomputed logits have in a batch."""
        return {"teacher_logits": teacher(**net_input)}

    def teacher_logits(self, batch: Batch) -> Tensor:
        """Return the teacher's logits of the rows, (B, C)."""
        if "teacher_logits" not in batch:
            problem = "learns from a teacher, but a row of the training data has no logits."
            remedy = "Write the data by x-pred with distill: true, and preprocess them with single_with_logits or"
            raise refusal("loss", problem, f"{remedy} pair_with_logits as loader and processor.")
        logits: Tensor = batch["teacher_logits"]
        return logits

    def divergence(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Return the sum over rows of T^2 KL(teacher | student), in nats, for logits (B, C) of each."""
        heat = self.parameters.distill_temperature
        ours, theirs = (logits / heat).log_softmax(dim=-1), (teacher / heat).log_softmax(dim=-1)
        found: Tensor = heat**2 * functional.kl_div(ours, theirs, reduction="sum", log_target=True)
        return found


class StaticDistill(FromTeacher):
    """T^2 KL(teacher | student) of logits divided by the temperature T, plus `gold_loss_lambda` times cross-entropy.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.
    """

    class Parameters(FromTeacherParameters, CrossEntropyParameters):
        """Keys of `static_distill`."""

        negative_classes_in_f1: list[int] = declare.param(
            [0], doc="Class numbers left out of precision, recall and F1, such as 'other'.", alters="score"
        )


class OnlineDistill(FromTeacher):
    """The loss of `static_distill` for the task `distill`, which runs the teacher during training.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.
    """

    class Parameters(FromTeacherParameters, CrossEntropyParameters):
        """Keys of `distill`."""


class BCEDistill(FromTeacher, BinaryCrossEntropy):
    """T^2 KL(teacher | student) of each question of `bce`, plus `gold_loss_lambda` times its loss.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2, with a sigmoid per class.
    """

    class Parameters(FromTeacherParameters, BCEParameters):
        """Keys of `bce_distill`."""

    def divergence(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Return the sum over rows and questions, in nats; without several labels class 0 has no question."""
        heat, first = self.parameters.distill_temperature, 0 if self.parameters.several_labels else 1
        ours, theirs = logits[:, first:] / heat, teacher[:, first:] / heat
        yes, no = functional.logsigmoid(theirs), functional.logsigmoid(-theirs)
        gap = yes.exp() * (yes - functional.logsigmoid(ours)) + no.exp() * (no - functional.logsigmoid(-ours))
        found: Tensor = heat**2 * gap.sum()
        return found
