"""TinyBERT: the student imitates the embeddings, layers and predictions of its teacher.

B texts, T positions, A heads, D features of a head, H width of the teacher, M masked tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.losses.arithmetic import scaled_scores
from xdpx.losses.base import Batch
from xdpx.losses.bert import texts_of_tokens
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.parameters import TinyBertParameters, TinyBertTaskParameters
from xdpx.losses.taught import Imitation, Taught, refuse_other_logits, teacher_result, unequal_heads
from xdpx.metrics import ratio
from xdpx.models.pytorch.modules.activations import Activations, Heads, capture_activations

INTERMEDIATE = ("attention_loss", "embedding_loss", "hidden_loss")


class TinyBertLoss(Imitation):
    """General distillation: attention scores, embeddings and hidden states; optionally the predictions of the heads.

    Layer m of M in the student imitates layer m * N / M of N in the teacher. Means run over real tokens only.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, equations 6 to 10.
    """

    hooks_model = True

    class Parameters(TinyBertParameters):
        """Keys of `tinybert`."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", *INTERMEDIATE, "lm_loss", "cls_loss"))

    @property
    def reads_output(self) -> bool:
        """Whether the teacher's predictions for tokens or texts are imitated, in addition to its layers."""
        return self.parameters.mlm_predict_distill or self.parameters.nsp_predict_distill

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the teacher goes through."""
        return {"teacher_activations": capture_activations(teacher, net_input)}

    def parts(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the parts that the parameters enable, (B,) each."""
        known, theirs = self.parameters, teacher_result(batch, "teacher_activations")
        ours = capture_activations(model, batch["net_input"])
        found = intermediate(model, ours, theirs, batch, attention=known.attention_distill, hidden=known.hidden_distill)
        if known.mlm_predict_distill:
            tokens = soft_cross_entropy(_output(ours, 0), _output(theirs, 0))
            found["lm_loss"] = known.lm_weight * _mean_per_text(tokens, batch["net_input"])
        if known.nsp_predict_distill:
            found["cls_loss"] = soft_cross_entropy(_output(ours, 1), _output(theirs, 1))
        return found


class TinyBertTaskLoss(Taught, CrossEntropy):
    """Task-specific distillation: the parts of `tinybert`, and the cross-entropy with the teacher's prediction.

    The paper imitates layers first (`cls_predict_distill: false`), predictions in a second run. Held-out data are
    scored by cross-entropy with their labels.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, equations 6 to 11.
    """

    hooks_model = True

    class Parameters(TinyBertTaskParameters):
        """Keys of `tinybert_td`."""

    parameters: Parameters

    @property
    def reads_output(self) -> bool:
        """Whether the prediction is imitated, in addition to the layers."""
        return self.parameters.cls_predict_distill

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the teacher goes through."""
        return {"teacher_activations": capture_activations(teacher, net_input)}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over texts, their number, and the sum of each part."""
        known, theirs = self.parameters, teacher_result(batch, "teacher_activations")
        ours = capture_activations(model, batch["net_input"])
        parts = intermediate(model, ours, theirs, batch, attention=known.attention_distill, hidden=known.hidden_distill)
        if known.cls_predict_distill:
            parts["cls_loss"] = soft_cross_entropy(ours.output, theirs.output, heat=known.distill_temperature)
        sums = {name: part.sum() for name, part in parts.items()}
        facts = {name: value.detach() for name, value in sums.items()}
        if "target" in batch:
            facts["correct"] = self.correct(ours.output.detach(), batch["target"])
        return torch.stack(list(sums.values())).sum(), len(ours.output), facts

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss and its parts, per text (`loss_unit` has no effect); acc if there are labels."""
        shown = {"loss": "loss_sum", **{name: name for name in (*INTERMEDIATE, "cls_loss")}, "acc": "correct"}
        return {name: ratio(facts[of], facts["count"], empty=float("nan")) for name, of in shown.items() if of in facts}


def intermediate(
    model: nn.Module, ours: Activations, theirs: Activations, batch: Batch, *, attention: bool, hidden: bool
) -> dict[str, Tensor]:
    """Return the distances of the student's layers to the teacher's: attention_loss, embedding_loss, hidden_loss.

    Raises:
        ConfigError: the student is deeper, numbers of heads differ, or widths differ without a projection.
    """
    mask, found = batch["net_input"]["attention_mask"].bool(), {}
    _refuse_deeper(len(ours.heads), len(theirs.heads))
    layers = uniform_map(len(ours.heads), len(theirs.heads))
    if attention:
        if counts := unequal_heads(ours.heads[0], theirs.heads[0]):
            remedy = "Give the student as many heads, or set it to false."
            raise refusal("attention_distill", f"is true, but {counts}.", remedy)
        gaps = [score_gap(own, theirs.heads[layer - 1], mask) for own, layer in zip(ours.heads, layers, strict=True)]
        found["attention_loss"] = torch.stack(gaps).sum(dim=0)
    if hidden:
        fit = getattr(model, "fit", None)
        states = ours.hidden if fit is None else fit(ours.hidden)
        _refuse_other_width(states[0], theirs.hidden[0])
        first, *gaps = (
            state_gap(own, theirs.hidden[layer], mask) for own, layer in zip(states, (0, *layers), strict=True)
        )
        found |= {"embedding_loss": first, "hidden_loss": torch.stack(gaps).sum(dim=0)}
    return found


def uniform_map(of_student: int, of_teacher: int) -> list[int]:
    """Return for each layer of the student the number (from 1) of the teacher's layer that it imitates.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 4.2: g(m) = m * N / M, here rounded down.
    """
    return [number * of_teacher // of_student for number in range(1, of_student + 1)]


def score_gap(ours: Heads, theirs: Heads, mask: Tensor) -> Tensor:
    """Return the mean square difference of scores before the softmax, over heads and pairs of tokens, (B,)."""
    square = (scaled_scores(ours.query, ours.key) - scaled_scores(theirs.query, theirs.key)).square().mean(dim=1)
    pairs = mask[:, :, None] & mask[:, None, :]
    mean: Tensor = (square * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))
    return mean


def state_gap(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """Return the mean square difference of states (B, T, H) over features and real tokens, (B,)."""
    square = (ours.float() - theirs.float()).square().mean(dim=-1)
    return (square * mask).sum(dim=1) / mask.sum(dim=1)


def soft_cross_entropy(ours: Tensor, theirs: Tensor, heat: float = 1.0) -> Tensor:
    """Return the cross-entropy (...) of logits (..., C) against the softmax of `theirs`, at temperature `heat`."""
    refuse_other_logits(ours, theirs)
    found: Tensor = -((theirs.float() / heat).softmax(dim=-1) * (ours.float() / heat).log_softmax(dim=-1)).sum(dim=-1)
    return found


def _mean_per_text(of_tokens: Tensor, net_input: Mapping[str, Tensor]) -> Tensor:
    """Return the mean over the masked tokens of each text, (B,), of values (M,); 0 for a text without any."""
    text, how_many = texts_of_tokens(net_input)
    return of_tokens.new_zeros(len(net_input["input_ids"])).index_add(0, text, of_tokens / how_many)


def _output(activations: Activations, index: int) -> Tensor:
    """Return logits of masked tokens (0) or of texts (1)."""
    output = activations.output
    if isinstance(output, tuple) and len(output) == 2:
        logits: Tensor = output[index]
        return logits
    key = ("mlm_predict_distill", "nsp_predict_distill")[index]
    remedy = "Use tinybert_for_gd as student and bert_pretrain as teacher, or set it to false."
    raise refusal(key, "is true, but student or teacher has no such output.", remedy)


def _refuse_deeper(of_student: int, of_teacher: int) -> None:
    """Raise ConfigError if no layer of the teacher corresponds to the student's first ones."""
    if of_student > of_teacher:
        problem = f"is imitated layer by layer, but it has {of_teacher} layers, and the student {of_student}."
        remedy = "Use a student with as many layers or fewer; are the two models swapped?"
        raise refusal("teacher_model", problem, remedy)


def _refuse_other_width(ours: Tensor, theirs: Tensor) -> None:
    if ours.shape[-1] != theirs.shape[-1]:
        wanted = theirs.shape[-1]
        problem = f"leads to a width of {ours.shape[-1]} in the student, but the teacher's layers have {wanted}."
        remedy = f"Use a student of TinyBERT with student_fit_size: {wanted}."
        raise refusal("fit_size", problem, remedy)
