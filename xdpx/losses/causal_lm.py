"""Cross-entropy of the next token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import Batch, Gathered, Loss
from xdpx.losses.metrics import ratio

NO_TARGET = -100
"""Stands where nothing is guessed."""


class CausalLM(Loss):
    """Negative log likelihood of each token given those before it; the model gives logits for every position."""

    metric_names = dict.fromkeys(("loss", "acc", "ppl"))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over tokens that are guessed, their number, and how many are predicted right."""
        sums = self.predictions(model, batch)
        return sums["loss_sum"], sums["count"], {"correct": sums["correct"]}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give sums only (loss_sum, count, correct): a row of logits per token would fill the memory."""
        logits, target = model(**batch["net_input"]).float(), batch["target"]
        flat = logits.flatten(0, 1), target.flatten()
        return {
            "loss_sum": functional.cross_entropy(*flat, reduction="sum", ignore_index=NO_TARGET),
            "count": torch.count_nonzero(target != NO_TARGET),
            "correct": torch.count_nonzero(logits.detach().argmax(dim=-1) == target),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per token), acc, and ppl: two to the power of the loss."""
        return self.train_metrics({name: float(gathered[name]) for name in ("loss_sum", "count", "correct")})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per token), acc and ppl of the training batches."""
        found = super().train_metrics(facts)
        found["acc"] = ratio(facts["correct"], facts["count"], empty=float("nan"))
        found["ppl"] = float(np.exp2(found["loss"]))
        return found
