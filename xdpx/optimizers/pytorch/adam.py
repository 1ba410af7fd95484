"""Adam with decoupled weight decay, in one fused kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xdpx.optimizers.pytorch.parameters import AdamParameters
from xdpx.optimizers.pytorch.row_gradients import RowsAsDense


class Adam(torch.optim.AdamW):
    """AdamW over parameter groups; the learning rate of each group stands in the group.

    Two tensors may be set on it before `step`: `grad_scale` (the gradients are divided by it within the fused kernel,
    so that dividing by a count and clipping cost no pass of their own; they are left divided) and `found_inf` (1.0
    makes the step do nothing).

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
    """

    takes_rows = takes_scaling = True

    class Parameters(AdamParameters):
        """Keys of `adam`."""

    def __init__(self, parameters: Parameters, *, groups: Sequence[dict[str, Any]]) -> None:
        self.grad_scale: torch.Tensor | None = None
        self.found_inf: torch.Tensor | None = None
        self._rows = RowsAsDense()
        first, second = parameters.adam_betas
        super().__init__(
            list(groups),
            lr=parameters.learning_rate,
            betas=(first, second),
            eps=parameters.adam_eps,
            weight_decay=parameters.weight_decay,
            fused=True,
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step; the gradient of an embedding may be rows."""
        with self._rows.during_step(self.param_groups):
            return super().step(closure)
