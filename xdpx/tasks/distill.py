"""On-line distillation: the teacher is run on every batch while the student trains."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.checkpoints.trusted import load_weights
from xdpx.config import parameters as declare
from xdpx.config.args_file import ARGS_FILE
from xdpx.config.faults import THIS_RUN, ConfigError, refusal
from xdpx.config.loading import Run
from xdpx.engines.pytorch.state import fill_model, model_weights
from xdpx.logger import log
from xdpx.losses.base import Batch, Loss
from xdpx.losses.taught import Taught
from xdpx.models.pytorch import weights
from xdpx.models.pytorch.bert import Bert
from xdpx.models.pytorch.weights import is_encoder
from xdpx.tasks.default import Task
from xdpx.tasks.parameters import GROUP, DataParameters
from xdpx.tokenizers.agreement import of_classifier
from xdpx.utils import io
from xdpx.utils.distributed_utils import is_master

TEACHER = "teacher"
"""Key of the teacher in the state of the task."""

OF_SOME = ("masked_positions", "token_type_ids")
"""Inputs that are dropped for models that do not take them."""


class Distill(Task):
    """A student learns to imitate a teacher, run without dropout. Only the student is trained and saved.

    The teacher has the weights of `teacher_pretrained_model`, loaded at its first use: predicting never needs it,
    evaluating only for losses that compare with the teacher alone (`minilm`, `tinybert`). A light student may learn
    from a BERT: it reads the same tokens, under its own input names.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2.

    Args:
        parameters: its keys.
        model: the student.
        loss: one that learns from a teacher.
        make_teacher: builds the teacher with its weights.
    """

    may_share_weights = False  # losses look inside the student

    class Parameters(DataParameters):
        """Keys of `distill`."""

        teacher_model: str = declare.param(
            doc="The teacher, which is imitated; its keys begin with teacher_.", registry="model", group=GROUP
        )
        teacher_pretrained_model: str = declare.param(
            doc="All weights of the teacher: a file, a folder, or e.g. out/teacher/<best>.", group=GROUP
        )
        student_model: str = declare.param(
            doc="The student, which is trained and kept; its keys begin with student_.", registry="model", group=GROUP
        )

        @property
        def model(self) -> str:
            """The network that is trained."""
            return self.student_model

    parameters: Any

    def __init__(self, parameters: Any, model: nn.Module, loss: Loss, *, make_teacher: Callable[[], nn.Module]) -> None:
        super().__init__(parameters, model, loss)
        if not isinstance(loss, Taught):
            problem = f"is '{parameters.loss}', which cannot learn from a teacher."
            remedy = "Use distill, static_distill, bce_distill, minilm, tinybert, tinybert_td or pkm_local_distill."
            raise refusal("loss", problem, remedy)
        self._taught = loss
        self._teacher = Teacher(make_teacher, path=parameters.teacher_pretrained_model)

    @classmethod
    def built(cls, run: Run, loss: Any) -> Distill:
        """Return the task of a run, with its student."""
        return cls(
            run.parameters("task"), run.build("model", "student_"), loss, make_teacher=lambda: _teacher_of(run, loss)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss, and which teacher it was that training has learned from so far."""
        known = self._teacher.known
        return super().state_dict() | ({} if known is None else {TEACHER: known})

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; states of earlier versions do not tell the teacher."""
        super().load_state_dict({name: value for name, value in saved.items() if name != TEACHER})
        self._teacher.known = saved.get(TEACHER)

    def train_step(self, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return (loss sum in nats, count, facts) of one micro-batch."""
        return super().train_step({**self._for_student(batch), **self._asked(batch)})

    def valid_step(self, batch: Batch) -> dict[str, Tensor]:
        """Return the student's predictions of one batch, or its distance from the teacher."""
        asked = self._asked(batch) if self._taught.scored_by_teacher else {}
        return super().valid_step({**self._for_student(batch), **asked})

    def _asked(self, batch: Batch) -> dict[str, Any]:
        return self._teacher.asked(self._taught, batch, next(self.model.parameters()).device)

    def _for_student(self, batch: Batch) -> Batch:
        return {**batch, "net_input": net_input_for(self.model, batch["net_input"])}


class MemoryDistillation(Distill):
    """Memory layers learn to imitate the feed-forward layers of a teacher, one by one: loss `pkm_local_distill`.

    To use the result in a BERT, set `pretrained_memories: out/memories/<best>` (`bert_classification_pkm`, ...).

    Source: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015, section 2.2, with the memories of Lample et
    al., "Large Memory Layers with Product Keys", NeurIPS 2019, as students.
    """

    class Parameters(Distill.Parameters):
        """Keys of `pkm_distill`."""

        teacher_model: str = declare.param(
            "bert_teacher_for_pkm",
            doc="The network whose feed-forward parts are learned; its keys begin with teacher_.",
            registry="model",
            group=GROUP,
        )
        student_model: str = declare.param(
            "pkm_student",
            doc="The memories that are trained and kept: pkm_student or lopkm_student; keys begin with student_.",
            registry="model",
            group=GROUP,
        )
        teacher_batch_size: int | None = declare.param(
            None, gt=0, doc="Accepted without effect, for old configs.", group=GROUP
        )


class Teacher:
    """A network that is built at its first use, and shared by copies of the task.

    Args:
        make: builds it.
        path: of its weights, for messages.

    Attributes:
        known: `path` and `digest` of the weights that a checkpoint was trained with, then of its own; None before.
    """

    def __init__(self, make: Callable[[], nn.Module], *, path: str) -> None:
        self._make, self._path = make, path
        self._model: nn.Module | None = None
        self.known: dict[str, str] | None = None

    def asked(self, loss: Taught, batch: Batch, device: torch.device) -> dict[str, Any]:
        """Return the outputs of the teacher for a batch that the loss needs."""
        if self._model is None:
            # Building draws random weights, which must not change the random state of the student's dropout.
            with torch.random.fork_rng(devices=[]):
                self._model = self._make().eval().requires_grad_(requires_grad=False)
            self._compare(self._model)
            self._model.to(device)
        with torch.no_grad():
            return loss.ask(self._model, net_input_for(self._model, batch["net_input"]))

    def _compare(self, model: nn.Module) -> None:
        """Warn if these are other weights than those of the teacher until the checkpoint."""
        before, self.known = self.known, {"path": self._path, "digest": digest_of(model)}
        if before is not None and before["digest"] != self.known["digest"] and is_master():
            log.warning(
                f"teacher_pretrained_model: the weights in {self._path} are not those that this run has learned "
                f"from ({before['path']}). From here on it imitates them; a loss that is the distance from the teacher "
                "cannot be compared with earlier ones. Restore the old ones, or start a new run in a new save_dir.",
                once=True,
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
        return self


def digest_of(model: nn.Module) -> str:
    """Return a checksum of all weights and buffers of a model on the host, by their names."""
    found = 0
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    for name, value in sorted(tensors.items()):
        found = zlib.crc32(name.encode(), found)
        content: Any = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        found = zlib.crc32(content, found)
    return f"{found:08x}"


def _teacher_of(run: Run, loss: Taught) -> nn.Module:
    """Return the teacher with its saved weights; raise ConfigError if some that the loss needs are missing.

    Other weights in its folder, such as the heads of another task, are ignored.
    """
    path = run.parameters("task").teacher_pretrained_model
    names = ("vocab.txt", "target_map.txt") if loss.reads_output else ("vocab.txt",)
    refuse_other_numbers(io.parent(path), run.values["data_dir"], names)
    if loss.reads_output and (fault := of_classifier("teacher_pretrained_model", path, run.values["data_dir"])):
        raise ConfigError(THIS_RUN, [fault])  # of a folder in Hugging Face format, which names the labels
    teacher: nn.Module = run.build("model", "teacher_")
    found, own = weights.read(path, load_weights), model_weights(teacher)
    if isinstance(teacher, Bert):
        # Not the adapt of its class: that drops the classifier, whose outputs are to be imitated.
        given = found if own.keys() <= found.keys() else Bert.adapt(teacher, found)
        loaded = {id(own[name]): given[name] for name in own if name in given}
        # A tied weight is saved under one of its names only.
        found = {name: loaded[id(each)] for name, each in own.items() if id(each) in loaded}
        heads = {name: each for name, each in own.items() if not is_encoder(name)}
        if not loss.reads_output:
            found = {**found, **heads}
        elif absent := [name for name in heads if name not in found]:
            problem = f"is '{path}', which lacks what the student should imitate: {', '.join(absent[:4])}."
            remedy = "Name a teacher that was trained for it, or set what should not be imitated to false (*_distill)."
            raise refusal("teacher_pretrained_model", problem, remedy)
    fill_model(teacher, found, source=path)
    return teacher


def refuse_other_numbers(folder: str, data_dir: str, names: Sequence[str]) -> None:
    """Raise ConfigError if a teacher's run has other files of these names than the data: numbers would mean others.

    Args:
        folder: of the teacher's checkpoint; one that is not of a run of x-train is not looked at.
        data_dir: of the student.
        names: of the files that define the meaning of tokens and classes.
    """
    for name in names if folder and io.isfile(io.join(folder, ARGS_FILE)) else ():
        ours, theirs = io.join(data_dir, name), io.join(folder, name)
        if io.isfile(ours) and io.isfile(theirs) and io.md5(ours) != io.md5(theirs):
            problem = f"is of '{folder}', whose {name} differs from that of {data_dir}: ids mean different things."
            remedy = f"Preprocess the student's data with the {name} of the teacher."
            raise refusal("teacher_pretrained_model", problem, remedy)


def net_input_for(model: nn.Module, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs under the names that the model takes: for a light one, BERT's tokens under its own names.

    Masked positions and token types are dropped if the model does not take them.
    """
    taken = inspect.signature(model.forward).parameters
    if "input_ids" in given and "tokens" in taken:
        return {"tokens": given["input_ids"], "mask": given["attention_mask"].bool()}
    return {name: value for name, value in given.items() if name in taken or name not in OF_SOME}
