"""Adafactor: the running mean square of a matrix is stored factored, as one row and one column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Adafactor(torch.optim.Optimizer):
    """Adafactor with the signature of the class in transformers.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate; None with `relative_step`.
        eps: (added to the squared gradient, lower bound of the root mean square of a weight in `scale_parameter`).
        clip_threshold: Maximum root mean square of an update.
        decay_rate: Exponent: the running mean square decays by 1 - step**decay_rate.
        beta1: Decay of the running mean of the update; None: no momentum.
        weight_decay: Decoupled: each weight shrinks by this share times the learning rate per step.
        scale_parameter: Multiply the learning rate by the root mean square of the weight.
        relative_step: Use a learning rate of 1/sqrt(step), at most 1e-2, in place of `lr`.
        warmup_init: With `relative_step`: at most 1e-6 * step instead.

    The state has the names and shapes of the original, so that each can load the other's.

    Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018, algorithms
    4 and 5.
    """

    def __init__(  # noqa: PLR0913 - the signature of the original
        self,
        params: Iterable[Any],
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        if lr is not None and relative_step:
            raise ValueError(f"Adafactor: lr is {lr} and relative_step is true. Set relative_step=False, or lr=None.")
        if warmup_init and not relative_step:
            raise ValueError("Adafactor: warmup_init belongs to relative_step=True. Set that too, or leave it out.")
        defaults = {
            "lr": lr,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
            "warmup_init": warmup_init,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; weights without gradient are unchanged. Never synchronises with the device."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step_one(group, weight, weight.grad)
        return loss

    def _step_one(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> None:
        if gradient.is_sparse:
            raise RuntimeError("Adafactor: a gradient is sparse. Use dense gradients (nn.Embedding(sparse=False)).")
        if gradient.dtype in {torch.float16, torch.bfloat16}:
            gradient = gradient.float()
        state = self._state_of(group, weight, gradient)
        exact = weight.float() if weight.dtype in {torch.float16, torch.bfloat16} else weight
        state["step"] += 1
        state["RMS"] = _rms(exact)
        rate = _rate(group, state)
        update = _direction(state, gradient, 1.0 - state["step"] ** group["decay_rate"], group["eps"][0])
        update = _placed_as(gradient, update)
        update.div_((_rms(update) / group["clip_threshold"]).clamp_(min=1.0)).mul_(rate)
        if group["beta1"] is not None:
            update = state["exp_avg"].mul_(group["beta1"]).add_(update, alpha=1.0 - group["beta1"])
        if group["weight_decay"]:
            exact.mul_(1.0 - group["weight_decay"] * rate)
        exact.sub_(update)
        if exact is not weight:
            weight.copy_(exact)

    def _state_of(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> dict[str, Any]:
        """Return the state of a weight, created at its first gradient, with the gradient's dtype and mesh."""
        state: dict[str, Any] = self.state[weight]
        if not state:
            shape = gradient.shape
            state.update(step=0, RMS=0)
            if group["beta1"] is not None:
                state["exp_avg"] = torch.zeros_like(gradient)
            if len(shape) >= 2:
                state["exp_avg_sq_row"] = gradient.new_zeros(shape[:-1])
                state["exp_avg_sq_col"] = gradient.new_zeros(shape[:-2] + shape[-1:])
            else:
                state["exp_avg_sq"] = torch.zeros_like(gradient)
        for name, value in state.items():
            if name.startswith("exp_avg"):
                state[name] = _spread_as(gradient, value if value.dtype == gradient.dtype else value.to(gradient))
        return state


def _spread_as(gradient: Any, value: Tensor) -> Tensor:
    """Return a row or column that was read from a file; if the gradient is sharded, as one that every process holds."""
    if not hasattr(gradient, "placements") or hasattr(value, "placements"):
        return value
    from torch.distributed.tensor import DTensor, Replicate

    whole = [Replicate()] * gradient.device_mesh.ndim
    return DTensor.from_local(value, gradient.device_mesh, whole, run_check=False)


def _placed_as(gradient: Any, update: Any) -> Tensor:
    """Return an update sharded as its gradient is: torch gathers what has fewer rows than there are processes."""
    placements = getattr(gradient, "placements", None)
    moved: Tensor = update if placements is None else update.redistribute(placements=placements)
    return moved


def _rms(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor)
    return norm / math.sqrt(tensor.numel())


def _rate(group: dict[str, Any], state: dict[str, Any]) -> float | Tensor:
    rate: float | Tensor = group["lr"]
    if group["relative_step"]:
        highest = 1e-6 * state["step"] if group["warmup_init"] else 1e-2
        rate = min(highest, 1.0 / math.sqrt(state["step"]))
    return rate * state["RMS"].clamp(min=group["eps"][1]) if group["scale_parameter"] else rate


def _direction(state: dict[str, Any], gradient: Tensor, kept: float, tiny: float) -> Tensor:
    """Update the running mean square, and return gradient / root of it."""
    square = gradient.square().add_(tiny)
    if "exp_avg_sq" in state:
        mean = state["exp_avg_sq"].mul_(kept).add_(square, alpha=1.0 - kept)
        return mean.rsqrt().mul_(gradient)  # type: ignore[no-any-return]
    row = state["exp_avg_sq_row"].mul_(kept).add_(square.mean(dim=-1), alpha=1.0 - kept)
    column = state["exp_avg_sq_col"].mul_(kept).add_(square.mean(dim=-2), alpha=1.0 - kept)
    from_rows = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    return from_rows * column.rsqrt().unsqueeze(-2) * gradient  # type: ignore[no-any-return]
