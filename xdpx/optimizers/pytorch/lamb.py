"""LAMB: Adam with steps rescaled per tensor to the norm of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xdpx.optimizers.pytorch.parameters import AdamParameters
from xdpx.optimizers.pytorch.row_gradients import RowsAsDense


class Lamb(torch.optim.Optimizer):
    """LAMB for large batches, with bias correction, computed by multi-tensor (foreach) kernels.

    Supports `grad_scale` and `found_inf` like `Adam`.

    Source: You et al., "Large Batch Optimization for Deep Learning", ICLR 2020, algorithm 2, with phi(z) = z.
    """

    takes_rows = takes_scaling = True

    class Parameters(AdamParameters):
        """Keys of `lamb`."""

    def __init__(self, parameters: Parameters, *, groups: Sequence[dict[str, Any]]) -> None:
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None
        self._rows = RowsAsDense()
        defaults = {
            "lr": parameters.learning_rate,
            "betas": tuple(parameters.adam_betas),
            "eps": parameters.adam_eps,
            "weight_decay": parameters.weight_decay,
        }
        super().__init__(list(groups), defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step; weights without gradient are unchanged."""
        if closure is not None:
            raise ValueError("Lamb takes no closure: compute the gradients before calling step().")
        if self.found_inf is not None and bool(self.found_inf):
            return
        with self._rows.during_step(self.param_groups):
            for group in self.param_groups:
                weights = [weight for weight in group["params"] if weight.grad is not None]
                if weights:
                    self._step_group(group, weights)

    def _step_group(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if self.grad_scale is not None:
            torch._foreach_div_(gradients, self.grad_scale)
        direction = self._adam_direction(group, weights, gradients)
        if group["weight_decay"]:
            torch._foreach_add_(direction, weights, alpha=group["weight_decay"])
        torch._foreach_mul_(direction, _trust_ratios(weights, direction))
        torch._foreach_add_(weights, direction, alpha=-group["lr"])

    def _adam_direction(self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Update the running means, and return mean / (root of mean square + eps), both bias-corrected."""
        states = [self._state_of(weight) for weight in weights]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        first, second = group["betas"]
        torch._foreach_add_([state["step"] for state in states], 1)
        torch._foreach_lerp_(means, gradients, 1.0 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - second)
        taken = [float(state["step"]) for state in states]
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [(1.0 - second**steps) ** 0.5 for steps in taken])
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(roots, [1.0 - first**steps for steps in taken])
        return list(torch._foreach_div(means, roots))

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state


def _trust_ratios(weights: list[Tensor], direction: list[Tensor]) -> list[Tensor]:
    """Return |weight| / |direction| for each tensor; 1 if either norm is 0."""
    weight_norms = torch.stack(torch._foreach_norm(weights))
    step_norms = torch.stack(torch._foreach_norm(direction))
    usable = (weight_norms > 0) & (step_norms > 0)
    return list(torch.where(usable, weight_norms / step_norms, torch.ones_like(weight_norms)).unbind())
