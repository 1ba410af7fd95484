"""What the losses of distillation let a user decide. No torch here: a config is checked before torch is imported."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.losses.classification_parameters import BCEParameters
from xdpx.losses.parameters import CrossEntropyParameters

NO_R_DROP = ("use_r_dropout", "is not known to this loss. Use cross_entropy, or set it to false.")


class StaticDistillParameters(CrossEntropyParameters):
    """Keys of `static_distill`."""

    distill_temperature: float = declare.param(
        1.0, gt=0, doc="What the logits of teacher and student are divided by: the larger, the softer the targets."
    )
    gold_loss_lambda: float = declare.param(0.0, ge=0, doc="Weight of the cross-entropy with the labels; 0: none.")
    negative_classes_in_f1: list[int] = declare.param(
        [0], doc="Class numbers left out of precision, recall and F1 ('nothing of interest')."
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse what the loss cannot honour."""
        return [*super().conflicts(), *([NO_R_DROP] if self.use_r_dropout else [])]


class OnlineDistillParameters(CrossEntropyParameters):
    """Keys of `distill`."""

    distill_temperature: float = declare.param(
        1.0, gt=0, doc="What the logits of teacher and student are divided by: the larger, the softer the targets."
    )
    gold_loss_lambda: float = declare.param(0.0, ge=0, doc="Weight of the cross-entropy with the labels; 0: none.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse what the loss cannot honour."""
        return [*super().conflicts(), *([NO_R_DROP] if self.use_r_dropout else [])]


class BCEDistillParameters(BCEParameters):
    """Keys of `bce_distill`."""

    distill_temperature: float = declare.param(
        1.0, gt=0, doc="What the logits of teacher and student are divided by: the larger, the softer the targets."
    )
    gold_loss_lambda: float = declare.param(0.0, ge=0, doc="Weight of the loss with the labels; 0: none.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse what the loss cannot honour."""
        return [*super().conflicts(), *([NO_R_DROP] if self.use_r_dropout else [])]
