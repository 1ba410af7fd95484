"""Tensor functions shared by several losses. B rows, A heads, T positions, C classes, D features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class DeviceConstant:
    """A list of numbers from a config, copied to each device once and not at every step."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = list(values)
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, other: Tensor) -> Tensor:
        """Return the numbers, (N,), with the device and dtype of another tensor."""
        place = other.device, other.dtype
        if place not in self._copies:
            # The first call may be in an evaluation, and inference tensors cannot be used in a backward pass.
            with torch.inference_mode(mode=False):
                self._copies[place] = torch.tensor(self._values, device=other.device, dtype=other.dtype)
        return self._copies[place]


def tally(index: Tensor, size: int) -> Tensor:
    """Return how often each number below `size` occurs, (size,); unlike `torch.bincount` without a device sync."""
    ones = torch.ones_like(index, dtype=torch.float32)
    return torch.zeros(size, device=index.device).index_add(0, index, ones)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right in float32, also under autocast, which would cast both to half precision.

    The callers need more than the 8 bits of bf16 or the range of fp16: distances as differences of large squares,
    cosines over a small temperature, squares of scores.
    """
    with torch.autocast(left.device.type, enabled=False):
        found: Tensor = left.float() @ right.float()
    return found


def scaled_scores(left: Tensor, right: Tensor) -> Tensor:
    """Return the scaled dot products left right' / sqrt(D) of vectors (B, A, T, D), shape (B, A, T, T).

    Source: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, equation 1.
    """
    scores: Tensor = product(left, right.transpose(2, 3)) * left.shape[-1] ** -0.5
    return scores


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return (KL(p|q) + KL(q|p)) / 2 in nats, summed over rows, of two tensors of log probabilities (B, C)."""
    return ((first.exp() - second.exp()) * (first - second)).sum() / 2.0
