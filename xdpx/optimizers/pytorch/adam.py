"""Adam with decoupled weight decay, as a fused kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xdpx.optimizers.pytorch.parameters import AdamParameters
from xdpx.optimizers.pytorch.row_gradients import RowsAsDense


class Adam(torch.optim.AdamW):
    """AdamW over parameter groups, each with its own learning rate.

    Two tensor attributes may be set before `step`: `grad_scale`, by which the fused kernel divides the gradients (so
    that averaging and clipping need no extra pass; they stay divided), and `found_inf`, which at 1.0 skips the step.

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
        """Take one step; gradients of embeddings may be sparse rows."""
        with self._rows.during_step(self.param_groups):
            return super().step(closure)
