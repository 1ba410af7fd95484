"""Cross-entropy of masked tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import Batch, Gathered, Loss
from xdpx.losses.bert import right_tokens
from xdpx.losses.metrics import ratio


class MaskedLM(Loss):
    """Negative log likelihood of the tokens that were masked. The model gives one row of logits per masked token.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1, task 1.
    """

    metric_names = dict.fromkeys(("loss", "acc", "top5_acc", "ppl"))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over masked tokens, their number, and how many are predicted right."""
        logits = model(**batch["net_input"]).float()
        target = batch["target"]
        loss = functional.cross_entropy(logits, target, reduction="sum")
        return loss, len(target), right_tokens(logits.detach(), target, scored=False)

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give sums only (loss_sum, count, correct, top5_correct): a row of logits per token would fill the memory."""
        logits = model(**batch["net_input"]).float()
        target = batch["target"]
        return {
            "loss_sum": functional.cross_entropy(logits, target, reduction="sum"),
            "count": torch.tensor(len(target)),
            **right_tokens(logits, target, scored=True),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per masked token), acc, and top5_acc: the share with the token among the five best."""
        sums = {name: float(gathered[name]) for name in ("loss_sum", "count", "correct", "top5_correct")}
        found = self.train_metrics(sums)
        found["top5_acc"] = ratio(sums["top5_correct"], sums["count"], empty=float("nan"))
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per masked token) and acc of the training batches."""
        found = super().train_metrics(facts)
        found["acc"] = ratio(facts["correct"], facts["count"], empty=float("nan"))
        return found
