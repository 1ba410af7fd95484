"""One question per class, where answers of every difficulty count alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from xdpx.losses.bce import BinaryCrossEntropy
from xdpx.losses.classification_parameters import GHMParameters
from xdpx.losses.on_device import tally


class GHMClassification(BinaryCrossEntropy):
    """Answers are counted by the size g = |p - y| of their gradient, and each weighs less the more are like it.

    The weights of a batch add up to its number of answers. Held-out data are scored by plain binary cross-entropy.
    Counts are of a micro-batch, so that its size matters.

    Source: Li, Liu and Wang, "Gradient Harmonized Single-stage Detector", AAAI 2019, equations 6 to 10; a range that
    was never seen begins with the count of its first batch, not with a share of it.
    """

    class Parameters(GHMParameters):
        """Keys of `ghmc`."""

    parameters: Parameters

    compares_rows = True

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._counts = torch.zeros(parameters.bins)  # of answers in each range, averaged over batches

    def objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the sum over rows and questions, in nats; counts what it sees."""
        each = self.answers(logits, target)
        return (each * self._harmonised(*self.questions(logits.detach(), target))).sum()

    def held_out_objective(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give plain binary cross-entropy."""
        return super().objective(logits, target)

    def _harmonised(self, asked: Tensor, wanted: Tensor) -> Tensor:
        """Give the weight of each answer, (B, Q), after counting them."""
        known = self.parameters
        size = (asked.sigmoid() - wanted).abs()
        index = (size * known.bins).long().clamp(0, known.bins - 1)
        here = tally(index.flatten(), known.bins).to(asked.dtype)
        before = self._counts.to(here)
        mixed = torch.where(before > 0, known.momentum * before + (1 - known.momentum) * here, here)
        self._counts = torch.where(here > 0, mixed, before)
        inverse = torch.where(here > 0, 1 / self._counts.clamp(min=1e-12), 0)
        weights = inverse[index]
        return weights * (weights.numel() / weights.sum().clamp(min=1e-12))

    def state_dict(self) -> dict[str, Any]:
        """Give the counts."""
        return {"counts": self._counts}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take the counts back."""
        self._counts = saved["counts"].clone()
