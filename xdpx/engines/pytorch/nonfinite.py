"""NaN and infinity: leave out updates that have them, or end the training; check weights for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from xdpx.engines.origin import NonFiniteUpdate
from xdpx.engines.pytorch import collectives, transfer
from xdpx.engines.pytorch.precision import Precision
from xdpx.utils.decisions import SKIPPED_AT_MOST

LOOKED_AT = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
"""Types of weights that can be NaN or infinite; quantised ones cannot."""


def all_finite(weights: Iterable[Tensor]) -> bool:
    """Return whether every weight is finite on all processes, by one reduction per device and type.

    On all processes.
    """
    by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for weight in weights:
        local = weight.detach()
        local = local.to_local() if hasattr(local, "to_local") else local
        if local.dtype in LOOKED_AT and local.numel() and not local.is_meta:
            by_kind.setdefault((local.device, local.dtype), []).append(local)
    found = [torch.stack(torch._foreach_norm(some, float("inf"))).isfinite().all() for some in by_kind.values()]
    return collectives.all_have(all(bool(each) for each in found))


class Guard:
    """Checks every update before it is taken.

    This makes the host wait for the device and for other processes, so it is used only on request, or where a single
    process trains on a CPU and there is nothing to wait for.

    Args:
        action: "skip" or "raise"; "keep" only calls `hear`.
        scaled: whether there is a loss scale, which leaves out updates with overflowing gradients by itself; then only
            the loss is checked.
        advice: how the user can find where NaN or infinity begins, for messages.
        hear: called with the number of a non-finite update before it is taken or left out; on all processes.
    """

    def __init__(
        self, action: str, *, scaled: bool, advice: str = "see with debug='underflow_overflow' where it begins",
        hear: Callable[[int], object] = lambda number: None,
    ) -> None:  # fmt: skip
        self._action, self._scaled, self._advice, self._hear = action, scaled, advice, hear
        self._in_a_row = 0
        self._alone = collectives.num_processes() == 1

    @classmethod
    def of(
        cls, action: str, precision: Precision, *, hear: Callable[[int], object] = lambda number: None
    ) -> Guard | None:
        """Return the guard for a value of `nonfinite_steps`; None if updates are taken without a check."""
        if action == "keep" and (not transfer.is_free_to_read(precision.device) or collectives.num_processes() > 1):
            return None
        return cls(action, scaled=precision.scaler is not None, hear=hear)

    def _is_bad(self, loss: Any, norm: Any) -> bool:
        loss = loss if isinstance(loss, Tensor) else torch.tensor(loss)
        if self._alone and transfer.is_free_to_read(loss.device):  # without small kernels
            return not (isfinite(loss.item()) and (self._scaled or isfinite(norm)))
        loss = loss.detach().float()
        looked_at = loss if self._scaled else loss + torch.as_tensor(norm).to(loss)
        return bool(collectives.sum_over_ranks((~looked_at.isfinite()).float()))

    def leaves_out(self, loss: Any, norm: Any, step: int) -> bool:
        """Return whether an update must be left out, the same on all processes. On all processes.

        Args:
            loss: of the update, on this process.
            norm: of the gradient before clipping, over all processes.
            step: the number of the update.

        Raises:
            NonFiniteUpdate: the action is "raise", or too many updates in a row were left out.
        """
        if not self._is_bad(loss, norm):
            self._in_a_row = 0
            return False
        self._hear(step)
        if self._action == "keep":
            return False
        self._in_a_row += 1
        if self._action == "raise":
            raise NonFiniteUpdate(
                f"step {step}: the loss is {float(loss):.6g} and the norm of the gradient {float(norm):.6g}. "
                f"nonfinite_steps is 'raise', so the update was not taken: the weights are those of step {step - 1}. "
                f"Look at the data of this step, lower learning_rate or max_grad_norm, {self._advice}, or set "
                "nonfinite_steps='skip'.",
                step,
            )
        if self._in_a_row >= SKIPPED_AT_MOST:
            raise NonFiniteUpdate(
                f"step {step}: the last {self._in_a_row} updates were left out one after another, because loss "
                f"or gradient was not finite: nothing is learnt. The weights are of step {step - self._in_a_row}. "
                f"Look at the data and the loss, lower learning_rate, or {self._advice}.",
                step,
            )
        return True
