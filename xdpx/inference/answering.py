"""Networks that also return what the loss makes of their logits, so that their file answers without torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xdpx.inference.formats import Exportable

if TYPE_CHECKING:
    from torch import nn

ANSWERS = ("prob", "pred_index")
"""Outputs that the loss computes from the logits: probabilities (B, C), and classes (B,) or, with several labels, 0 or
1 for each (B, C)."""


def can_answer(exportable: Exportable) -> bool:
    """Return whether the loss computes `ANSWERS` from the logits."""
    names = ("probabilities", "predict")
    return list(exportable.outputs) == ["logits"] and all(hasattr(exportable.loss, name) for name in names)


def answers_fully(exportable: Exportable) -> bool:
    """Return whether `ANSWERS` are all that the loss predicts, so that it is not needed to predict.

    A user's loss may decide on values in Python, which a trace does not show, so it is always asked itself.
    """
    from xdpx.losses.base import Loss
    from xdpx.losses.cross_entropy import CrossEntropy

    kind = type(exportable.loss)
    if not can_answer(exportable) or getattr(kind, "predictions", None) is not CrossEntropy.predictions:
        return False
    shipped = all(each.__module__.startswith(("xdpx.", "builtins")) for each in kind.__mro__)
    return shipped and kind.rows is Loss.rows


def answering(exportable: Exportable) -> Exportable:
    """Return an exportable network that returns logits and `ANSWERS`."""
    from torch import Tensor, int64, nn

    class Answering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = exportable.network

        def forward(self, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            logits = self.network(*given)
            prob = exportable.loss.probabilities(logits.float())
            return logits, prob, exportable.loss.predict(prob).to(int64)

    network: nn.Module = Answering().eval()
    return replace(exportable, network=network, outputs=[*exportable.outputs, *ANSWERS])
