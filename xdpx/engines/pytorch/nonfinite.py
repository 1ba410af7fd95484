"""Updates whose loss or gradient is NaN or infinite: leave them out, or end the training before weights are spoilt."""

from __future__ import annotations

from typing import Any

import torch

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision


class Guard:
    """Looks at every update before it is taken. The host waits for the device then, so this is on request only.

    Args:
        action: "skip" or "raise".
        scaled: whether a loss scale is at work; gradients that overflow are its own affair then, and it leaves such
            updates out by itself. Only the loss is looked at.
    """

    def __init__(self, action: str, *, scaled: bool) -> None:
        self._action = action
        self._scaled = scaled

    @classmethod
    def of(cls, action: str, precision: Precision) -> Guard | None:
        """Give the guard that `nonfinite_steps` asks for; None where updates are taken as they are."""
        return None if action == "keep" else cls(action, scaled=precision.scaler is not None)

    def leaves_out(self, loss: Any, norm: Any, step: int) -> bool:
        """Tell whether an update must not be taken. On all processes, which agree.

        Args:
            loss: of the update, on this process.
            norm: of the gradient before clipping, over all processes.
            step: the number of the update.

        Raises:
            FloatingPointError: it must not be taken, and training is to end then.
        """
        loss = torch.as_tensor(loss).detach().float()
        looked_at = loss if self._scaled else loss + torch.as_tensor(norm).to(loss)
        bad = (~looked_at.isfinite()).float()
        if not collectives.sum_over_ranks(bad):
            return False
        if self._action == "raise":
            raise FloatingPointError(
                f"step {step}: the loss is {float(loss):.6g} and the norm of the gradient {float(norm):.6g}. "
                f"nonfinite_steps is 'raise', so the update was not taken: the weights are those of step {step - 1}. "
                "Look at the data of this step, lower learning_rate or max_grad_norm, see with "
                "debug='underflow_overflow' where it begins, or set nonfinite_steps='skip'."
            )
        return True
