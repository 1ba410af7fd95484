"""What losses need where the logits are, without making the host wait for the device at every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Constant:
    """A list of numbers from a config: copied to each device once, not at every step."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = list(values)
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, other: Tensor) -> Tensor:
        """Give the numbers, (N,), where another tensor is and of its type."""
        place = other.device, other.dtype
        if place not in self._copies:
            self._copies[place] = torch.tensor(self._values, device=other.device, dtype=other.dtype)
        return self._copies[place]


def tally(index: Tensor, size: int) -> Tensor:
    """Count how often each number below `size` occurs, (size,); `torch.bincount` would look at the largest first."""
    ones = torch.ones_like(index, dtype=torch.float32)
    return torch.zeros(size, device=index.device).index_add(0, index, ones)
