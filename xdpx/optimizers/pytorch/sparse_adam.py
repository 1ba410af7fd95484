"""Adam that updates only the rows of a table that a batch has used. V rows of a table, R used rows, H width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xdpx.optimizers.pytorch.parameters import MeansParameters


class SparseAdam(torch.optim.Optimizer):
    """Adam that leaves weights and means of unused rows unchanged; without weight decay.

    The model decides which gradients are sparse (`mem_sparse` of a product-key memory); weights with dense gradients
    are updated as in Adam. The cost depends on the rows of a batch, not on the size of the table.

    Source: Kingma and Ba, "Adam", ICLR 2015, algorithm 1, masked like `torch.optim.SparseAdam`.
    """

    class Parameters(MeansParameters):
        """Keys of `sparse_adam`."""

    def __init__(self, parameters: Parameters, *, groups: Sequence[dict[str, Any]]) -> None:
        defaults = {
            "lr": parameters.learning_rate,
            "betas": tuple(parameters.adam_betas),
            "eps": parameters.adam_eps,
        }
        super().__init__([{**group, "weight_decay": 0.0} for group in groups], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step; weights without gradient are unchanged."""
        if closure is not None:
            raise ValueError("SparseAdam takes no closure: compute the gradients before calling step().")
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step_one(group, weight)

    def _step_one(self, group: dict[str, Any], weight: Tensor) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        state["step"] += 1
        gradient, rows_R = weight.grad, None
        if gradient.is_sparse:  # type: ignore[union-attr]
            gradient = gradient.coalesce()  # type: ignore[union-attr]
            rows_R, gradient = gradient.indices()[0], gradient.values()
        first, second = group["betas"]
        mean, square = (state[name] if rows_R is None else state[name][rows_R] for name in ("exp_avg", "exp_avg_sq"))
        mean = mean.lerp(gradient, 1.0 - first)
        square = square * second + gradient.square() * (1.0 - second)  # type: ignore[union-attr]
        taken = float(state["step"])
        size = (square / (1.0 - second**taken)).sqrt_().add_(group["eps"])
        change = (mean / size).mul_(-group["lr"] / (1.0 - first**taken))
        if rows_R is None:
            state["exp_avg"], state["exp_avg_sq"] = mean, square
            weight.add_(change)
        else:
            state["exp_avg"][rows_R], state["exp_avg_sq"][rows_R] = mean, square
            weight.index_add_(0, rows_R, change)
