"""Numbers that are NaN or infinite: updates that have them are left out, or end the training; weights are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from xdpx.engines.origin import NonFiniteUpdate
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.utils.decisions import SKIPPED_AT_MOST

LOOKED_AT = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
"""Types of weights that may be NaN or infinite; quantised ones cannot."""

FREE_TO_LOOK_AT = frozenset({"cpu"})
"""Devices whose numbers the host has without waiting."""


def all_finite(weights: Iterable[Tensor]) -> bool:
    """Tell whether every weight is finite, by one reduction per device and type. On all processes, which agree."""
    by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for weight in weights:
        local = weight.detach()
        local = local.to_local() if hasattr(local, "to_local") else local
        if local.dtype in LOOKED_AT and local.numel() and not local.is_meta:
            by_kind.setdefault((local.device, local.dtype), []).append(local)
    found = [torch.stack(torch._foreach_norm(some, float("inf"))).isfinite().all() for some in by_kind.values()]
    return collectives.all_have(all(bool(each) for each in found))


class Guard:
    """Looks at every update before it is taken.

    The host waits for the device, or for other processes, then: on request only, or where one process trains on a CPU
    and there is nothing to wait for.

    Args:
        action: "skip" or "raise"; "keep" tells `hear`, and nothing else.
        scaled: whether a loss scale is at work; gradients that overflow are its own affair then, and it leaves such
            updates out by itself. Only the loss is looked at.
        advice: how users of this door see where it begins.
        hear: told the number of an update that is not finite, before anything becomes of it; on all processes.
    """

    def __init__(
        self, action: str, *, scaled: bool, advice: str = "see with debug='underflow_overflow' where it begins",
        hear: Callable[[int], object] = lambda number: None,
    ) -> None:  # fmt: skip
        self._action, self._scaled, self._advice, self._hear = action, scaled, advice, hear
        self._in_a_row = 0

    @classmethod
    def of(
        cls, action: str, precision: Precision, *, hear: Callable[[int], object] = lambda number: None
    ) -> Guard | None:
        """Return the guard that `nonfinite_steps` asks for; None where updates are taken unseen."""
        if action == "keep" and (precision.device.type not in FREE_TO_LOOK_AT or collectives.num_processes() > 1):
            return None
        return cls(action, scaled=precision.scaler is not None, hear=hear)

    def leaves_out(self, loss: Any, norm: Any, step: int) -> bool:
        """Tell whether an update must not be taken. On all processes, which agree.

        Args:
            loss: of the update, on this process.
            norm: of the gradient before clipping, over all processes.
            step: the number of the update.

        Raises:
            NonFiniteUpdate: it must not be taken, and training is to end then; or none was taken for long.
        """
        loss = torch.as_tensor(loss).detach().float()
        looked_at = loss if self._scaled else loss + torch.as_tensor(norm).to(loss)
        bad = (~looked_at.isfinite()).float()
        if not collectives.sum_over_ranks(bad):
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
