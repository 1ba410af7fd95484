"""Distillation from the logits of a teacher, precomputed or on-line. B rows, C classes, Q questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.losses.base import Batch
from xdpx.losses.bce import BinaryCrossEntropy
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.parameters import BCEParameters, CrossEntropyParameters, FromTeacherParameters
from xdpx.losses.taught import Taught, refuse_other_logits


class FromTeacher(Taught, CrossEntropy):
    """T^2 KL(teacher | student) of logits divided by the temperature T, plus `gold_loss_lambda` times the plain loss.

    Held-out data are scored by the plain loss alone, with or without a teacher's logits.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.
    """

    parameters: Any

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the rows of the batch, their number, and how many are predicted right.

        Raises:
            ConfigError: a row of the training data has no logits of a teacher, or another number of them.
        """
        logits, target = self.logits(model, batch), batch["target"]
        teacher = self.teacher_logits(batch)
        refuse_other_logits(logits, teacher)
        distilled = self.divergence(logits, teacher.float())
        gold = self.objective(logits, target)
        facts = {
            "correct": self.correct(logits.detach(), target), "kl_loss": distilled.detach(), "ce_loss": gold.detach(),
        }  # fmt: skip
        return distilled + self.parameters.gold_loss_lambda * gold, len(target), facts

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return the teacher's logits, under the name that precomputed logits have in a batch."""
        return {"teacher_logits": teacher(**net_input)}

    def teacher_logits(self, batch: Batch) -> Tensor:
        """Return the teacher's logits of the rows, (B, C)."""
        if "teacher_logits" not in batch:
            problem = "learns from a teacher, but a row of the training data has no logits."
            remedy = "Write the data by x-pred with distill: true, and preprocess them with single_with_logits or"
            raise ConfigError(THIS_RUN, [Fault("loss", problem, f"{remedy} pair_with_logits as loader and processor.")])
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
            [0], doc="Class numbers left out of precision, recall and F1, such as 'other'."
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
