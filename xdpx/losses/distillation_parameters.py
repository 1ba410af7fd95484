"""What the losses of distillation let a user decide. No torch here: a config is checked before torch is imported."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.losses.classification_parameters import BCEParameters
from xdpx.losses.parameters import CrossEntropyParameters, LossParameters

NO_R_DROP = ("use_r_dropout", "is not known to this loss. Use cross_entropy, or set it to false.")
NOTHING = ("attention_distill", "is false, and so is all else that could be imitated. Set one of them to true.")
NO_LABELS = ("class_weights", "is set, but training learns from the teacher alone, not from labels. Leave it out.")
NO_EFFECT = "Accepted without effect, for old configs."


class FromTeacherParameters(declare.Parameters):
    """Keys of every loss that learns from the logits of a teacher; it stands in front of those of the plain loss."""

    distill_temperature: float = declare.param(
        1.0, gt=0, doc="What the logits of teacher and student are divided by: the larger, the softer the targets."
    )
    gold_loss_lambda: float = declare.param(0.0, ge=0, doc="Weight of the loss with the labels; 0: none.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse what the loss cannot honour."""
        return [*super().conflicts(), *([NO_R_DROP] if getattr(self, "use_r_dropout", False) else [])]


class StaticDistillParameters(FromTeacherParameters, CrossEntropyParameters):
    """Keys of `static_distill`."""

    negative_classes_in_f1: list[int] = declare.param(
        [0], doc="Class numbers left out of precision, recall and F1 ('nothing of interest')."
    )


class OnlineDistillParameters(FromTeacherParameters, CrossEntropyParameters):
    """Keys of `distill`."""


class BCEDistillParameters(FromTeacherParameters, BCEParameters):
    """Keys of `bce_distill`."""


class MiniLMParameters(LossParameters):
    """Keys of `minilm`."""

    relation_heads: int | None = declare.param(
        None,
        gt=0,
        doc="Relate queries, keys and values in so many heads, as MiniLMv2 does, a divisor of both widths; null: "
        "attention and values, as MiniLM does.",
    )
    distilled_layer: int = declare.param(
        -1, doc="Layer of the teacher that the student's last one imitates, from 0; negative from the last."
    )


class TinyBertParameters(LossParameters):
    """Keys of `tinybert`."""

    attention_distill: bool = declare.param(True, doc="Imitate attention scores.")
    hidden_distill: bool = declare.param(True, doc="Imitate embeddings and hidden states.")
    mlm_predict_distill: bool = declare.param(False, doc="Imitate what is said of masked tokens.")
    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of what is said of masked tokens.")
    nsp_predict_distill: bool = declare.param(False, doc="Imitate what is said of whole texts.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to imitate nothing."""
        wanted = (self.attention_distill, self.hidden_distill, self.mlm_predict_distill, self.nsp_predict_distill)
        return [*super().conflicts(), *([] if any(wanted) else [NOTHING])]


class TinyBertTaskParameters(CrossEntropyParameters):
    """Keys of `tinybert_td`."""

    attention_distill: bool = declare.param(True, doc="Imitate attention scores.")
    hidden_distill: bool = declare.param(True, doc="Imitate embeddings and hidden states.")
    cls_predict_distill: bool = declare.param(True, doc="Imitate the prediction.")
    distill_temperature: float = declare.param(
        1.0, gt=0, doc="What the logits of teacher and student are divided by: the larger, the softer the targets."
    )
    lm_weight: float = declare.param(1.0, ge=0, doc=NO_EFFECT)
    mlm_predict_distill: bool = declare.param(False, doc=NO_EFFECT)
    nsp_predict_distill: bool = declare.param(False, doc=NO_EFFECT)

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to imitate nothing, and what the loss cannot honour."""
        nothing = not (self.attention_distill or self.hidden_distill or self.cls_predict_distill)
        weights = [] if self.class_weights is None else [NO_LABELS]
        return [
            *super().conflicts(),
            *([NO_R_DROP] if self.use_r_dropout else []),
            *weights,
            *([NOTHING] if nothing else []),
        ]
