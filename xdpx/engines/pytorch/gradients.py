"""The size of a gradient, and what it is to be divided by."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Scaling(NamedTuple):
    """How the optimizer is to take a gradient; every field is a single number on the device.

    Attributes:
        norm: of the mean gradient, before clipping.
        divisor: what the summed gradient is divided by: count, loss scale and clipping in one.
        clipped: 1.0 when the norm was above the limit.
        broken: 1.0 when the gradient is not finite: the step is left out.
    """

    norm: Tensor
    divisor: Tensor
    clipped: Tensor
    broken: Tensor


def gradient_norm(optimizer: Any) -> Tensor:
    """Give the Euclidean norm over all gradients as they stand (sums, still multiplied by the loss scale)."""
    gradients = [
        weight.grad for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None
    ]
    if not gradients:
        raise RuntimeError("this is a bug: no weight received a gradient; is the loss cut off from the model?")
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return norm


def scale_of(summed_norm: Tensor, count: Tensor | float, loss_scale: float, clip_norm: float) -> Scaling:
    """Work out the divisor without waiting for the device.

    Args:
        summed_norm: norm of the gradient of (loss_scale * sum of losses).
        count: what the sum is to be divided by.
        loss_scale: multiplier of the loss under fp16, else 1.
        clip_norm: largest norm of the mean gradient; 0 for no limit.
    """
    whole = torch.as_tensor(count, dtype=torch.float32, device=summed_norm.device) * loss_scale
    norm = summed_norm / whole
    broken = 1.0 - torch.isfinite(norm).float()
    if clip_norm <= 0.0:
        return Scaling(norm, whole, torch.zeros_like(norm), broken)
    excess = (norm / clip_norm).clamp(min=1.0)
    return Scaling(norm, whole * excess, (norm > clip_norm).float(), broken)
