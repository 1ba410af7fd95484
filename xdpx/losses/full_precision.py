"""Comparisons that need every digit, under autocast too. B rows, A heads, T positions, D features."""

from __future__ import annotations

import torch
from torch import Tensor


def product(left: Tensor, right: Tensor) -> Tensor:
    """Give left @ right in float32. Autocast would round both to half precision, whatever type they have.

    What follows needs more than the 8 bits of bf16 or the range of fp16: distances as differences of large squares,
    cosines over a small temperature, squares of scores.
    """
    with torch.autocast(left.device.type, enabled=False):
        found: Tensor = left.float() @ right.float()
    return found


def scaled_scores(left: Tensor, right: Tensor) -> Tensor:
    """Give left right' / sqrt(D) of vectors (B, A, T, D): (B, A, T, T).

    Source: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, equation 1.
    """
    scores: Tensor = product(left, right.transpose(2, 3)) * left.shape[-1] ** -0.5
    return scores
