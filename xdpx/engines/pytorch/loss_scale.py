"""The loss scale of fp16: a factor, adapted during training, that keeps small gradients from vanishing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from xdpx.engines.origin import NonFiniteUpdate
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.utils.decisions import SKIPPED_AT_MOST


@dataclass
class LossScale:
    """The factor of the loss, and the counts that decide when it changes. Plain numbers: part of a snapshot.

    Attributes:
        scale: the factor; 1 without scaling.
        updates: number since the factor last changed, overflows included.
        overflows: how many of them overflowed.
        clean: updates since the last overflow or change.
        skipped: updates left out in a row, up to now.
    """

    scale: float = 1.0
    updates: int = 0
    overflows: int = 0
    clean: int = 0
    skipped: int = 0

    def scaled(self, loss: Tensor) -> Tensor:
        """Return a loss multiplied by the factor."""
        return loss * self.scale if self.scale != 1.0 else loss

    def after(self, *, overflow: bool, options: EngineOptions, num_updates: int) -> None:
        """Halve the factor when too many updates overflow, double it after a long time without.

        Raises:
            NonFiniteUpdate: the factor has come down to `min_loss_scale`, or too many updates in a row overflowed.

        Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2; the tolerance as in fairseq.
        """
        self.updates += 1
        self.overflows += overflow
        self.clean = 0 if overflow else self.clean + 1
        self.skipped = self.skipped + 1 if overflow else 0
        if overflow and self.overflows >= options.scale_tolerance * self.updates:
            self._set(min(self.scale, max(self.scale / 2.0, options.lowest_scale)))
        elif self.clean >= options.scale_window:  # above it where the window was shortened on resume
            self._set(self.scale * 2.0)
        if self.skipped >= SKIPPED_AT_MOST:
            raise NonFiniteUpdate(
                f"update {num_updates}: the last {self.skipped} updates overflowed in fp16 and were left out: at a "
                f"loss scale of {self.scale} nothing is learnt. Lower threshold_loss_scale or fp16_scale_tolerance, "
                "which keep it there; lower learning_rate; or use bf16 or fp32.",
                num_updates,
            )
        if overflow:
            refuse_scale(self.scale, options.min_loss_scale, num_updates)

    def _set(self, scale: float) -> None:
        self.scale, self.updates, self.overflows, self.clean = scale, 0, 0, 0


def refuse_scale(scale: float, lowest: float, number: int) -> None:
    """Raise NonFiniteUpdate if overflows have brought a loss scale down to the lowest one, or below it."""
    if scale <= lowest:
        raise NonFiniteUpdate(
            f"update {number}: gradients overflow in fp16 at any loss scale down to {scale}: the loss or a gradient "
            "is not finite. Lower learning_rate, or use bf16 or fp32.",
            number,
        )
