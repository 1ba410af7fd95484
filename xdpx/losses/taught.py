"""Base classes of losses that compare a student with a teacher run on the same batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.losses.base import Batch, Gathered, Loss
from xdpx.metrics import ratio
from xdpx.models.pytorch.modules.activations import Heads


class Taught(Loss):
    """A loss for the task `distill`, which adds the result of `ask` to every training batch."""

    learns_labels: ClassVar[bool] = False

    reads_class_logits = False  # it also reads hidden layers of its model

    @property
    def reads_output(self) -> bool:
        """Whether `ask` needs the final output of the teacher; else its encoder is enough."""
        return True

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return the teacher's outputs that the loss needs, by their names in the batch. Called without gradients."""
        raise NotImplementedError


def teacher_result(batch: Mapping[str, Any], name: str) -> Any:
    """Return a result of the teacher, which `ask` added to the batch.

    Raises:
        ConfigError: it is missing, because the task has no teacher.
    """
    if name not in batch:
        problem = "imitates a teacher, but no teacher predicts the batches."
        raise refusal("loss", problem, "Use task: distill, with teacher_model and student_model.")
    return batch[name]


def refuse_other_logits(ours: Tensor, theirs: object) -> None:
    """Raise ConfigError if a teacher gives other logits than the student; one column would be broadcast."""
    found = tuple(theirs.shape) if isinstance(theirs, Tensor) else type(theirs).__name__
    if found != tuple(ours.shape):
        problem = f"compares logits, but the teacher gives {found} where the student gives {tuple(ours.shape)}."
        remedy = "Use a teacher that was trained for the same classes, in the same order."
        raise refusal("loss", problem, remedy)


def unequal_heads(ours: Heads, theirs: Heads) -> str:
    """Return in words how many attention heads student and teacher have; '' if the numbers are equal."""
    student, teacher = ours.query.shape[1], theirs.query.shape[1]
    return "" if student == teacher else f"the student has {student} attention heads, the teacher {teacher}"


class SumOfParts(Taught):
    """A loss that is a sum of parts, whose sums are the facts `*_loss`; units are theirs, `loss_unit` has no effect."""

    scored_by_teacher: ClassVar[bool] = True

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return sums only."""
        loss_sum, count, facts = self(model, batch)
        return {"loss_sum": loss_sum, "count": torch.as_tensor(count), **facts}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss and its parts, each divided by what was counted."""
        return self.train_metrics({name: float(value) for name, value in gathered.items()})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss and its parts, each divided by what was counted."""
        named = {"loss": facts["loss_sum"], **{name: facts[name] for name in facts if name.endswith("_loss")}}
        return {name: ratio(value, facts["count"], empty=float("nan")) for name, value in named.items()}


class Imitation(SumOfParts):
    """A loss of which each part is the distance between student and teacher for each text.

    Each text has the same weight, whatever its length.
    """

    def parts(self, model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return each part by name, (B,)."""
        raise NotImplementedError

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over texts, their number, and the sum of each part."""
        sums = {name: part.sum() for name, part in self.parts(model, batch).items()}
        loss_sum = torch.stack(list(sums.values())).sum()
        return loss_sum, len(batch["id"]), {name: value.detach() for name, value in sums.items()}
