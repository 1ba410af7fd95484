"""On-line distillation: a teacher that is asked about every batch while its student learns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.checkpoints.trusted import load_weights
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.engines.pytorch.state import fill_model
from xdpx.losses.base import Batch, Loss
from xdpx.losses.static_distill import FromTeacher
from xdpx.models.pytorch import weights
from xdpx.tasks.default import Task
from xdpx.tasks.distill_parameters import DistillParameters


class Distill(Task):
    """A student learns what a teacher, without dropout, says of each batch. Only the student is trained and kept.

    The teacher has the weights of `teacher_pretrained_model`, and is read when training begins or goes on: scoring and
    predicting never need it. A light student may learn from a BERT: it reads the same tokens, under its own names.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.

    Args:
        parameters: its keys.
        model: the student.
        loss: one that learns from a teacher.
        make_teacher: builds the teacher with its weights.
    """

    class Parameters(DistillParameters):
        """Keys of `distill`."""

    parameters: Any

    def __init__(self, parameters: Any, model: nn.Module, loss: Loss, *, make_teacher: Callable[[], nn.Module]) -> None:
        super().__init__(parameters, model, loss)
        if not isinstance(loss, FromTeacher):
            problem = f"is '{parameters.loss}', which cannot learn from a teacher."
            raise ConfigError(THIS_RUN, [Fault("loss", problem, "Use distill, static_distill or bce_distill.")])
        self._teacher = Teacher(make_teacher)

    @classmethod
    def built(cls, run: Run, loss: Any) -> Distill:
        """Make the task of a run, with its student."""
        return cls(run.parameters("task"), run.build("model", "student_"), loss, make_teacher=lambda: _teacher_of(run))

    def train_step(self, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give (loss sum in nats, count, facts) of one micro-batch."""
        device = next(self.model.parameters()).device
        return super().train_step({**self._for_student(batch), "teacher_logits": self._teacher.logits(batch, device)})

    def valid_step(self, batch: Batch) -> dict[str, Tensor]:
        """Give the student's predictions of one batch."""
        return super().valid_step(self._for_student(batch))

    def _for_student(self, batch: Batch) -> Batch:
        return {**batch, "net_input": net_input_for(self.model, batch["net_input"])}


class Teacher:
    """A network that is built when it is first asked, and is shared by copies of the task."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self._make = make
        self._model: nn.Module | None = None

    def logits(self, batch: Batch, device: torch.device) -> Tensor:
        """Give what the teacher says of a batch, (B, C)."""
        if self._model is None:
            # Random weights that are drawn before those of the file come must not move the student's dropout.
            with torch.random.fork_rng(devices=[]):
                self._model = self._make().eval().requires_grad_(requires_grad=False).to(device)
        with torch.no_grad():
            logits: Tensor = self._model(**net_input_for(self._model, batch["net_input"]))
        return logits

    def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
        return self


def _teacher_of(run: Run) -> nn.Module:
    """Build the teacher with its own weights, all of them: one with random parts has nothing to teach."""
    path = run.parameters("task").teacher_pretrained_model
    teacher: nn.Module = run.build("model", "teacher_")
    fill_model(teacher, weights.read(path, load_weights), source=path)
    return teacher


def net_input_for(model: nn.Module, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the input under the names that a model takes: a light one reads BERT's tokens as its own."""
    if "input_ids" in given and "tokens" in inspect.signature(model.forward).parameters:
        return {"tokens": given["input_ids"], "mask": given["attention_mask"].bool()}
    return given
