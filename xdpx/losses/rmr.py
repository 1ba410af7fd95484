"""Random-message replacement. B sessions, K messages, M masked tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import BITS_PER_NAT, Batch, Gathered, Loss
from xdpx.losses.bert import per_text, token_metrics, token_sums
from xdpx.losses.metrics import ratio
from xdpx.losses.parameters import BertLossParameters

OF_MESSAGES = ("cls_loss", "cls_acc", "cls_precision", "cls_recall", "cls_f1")


class RMRLoss(Loss):
    """Which messages of a session are another's, plus `lm_weight` times the mean over the session's masked tokens.

    Each session weighs the same: the mean over its messages.
    """

    class Parameters(BertLossParameters):
        """How much the masked tokens weigh."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_MESSAGES))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over sessions, their number, and what both tasks sum to and count."""
        facts = self.predictions(model, batch)
        loss_sum = facts.pop("loss_sum")
        return loss_sum, int(facts.pop("count")), {name: value.detach() for name, value in facts.items()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give sums only."""
        tokens, told = (logits.float() for logits in model(**batch["net_input"]))
        real = batch["net_input"]["attention_mask"].bool().any(dim=-1)
        replaced = batch["cls_target"].bool() & real
        losses = functional.binary_cross_entropy_with_logits(told, replaced.to(told.dtype), reduction="none") * real
        of_messages = (losses.sum(dim=1) / real.sum(dim=1)).sum()
        found = (told.detach() > 0) & real
        return {
            **token_sums(tokens, batch["target"]),
            "loss_sum": of_messages + self.parameters.lm_weight * per_text(tokens, batch),
            "count": torch.tensor(len(real)),
            "cls_loss_sum": losses.sum(),
            "cls_count": real.sum(),
            "cls_right": ((found == replaced) & real).sum(),
            "cls_hits": (found & replaced).sum(),
            "cls_found": found.sum(),
            "cls_replaced": replaced.sum(),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per session), lm_loss, acc, top5_acc of tokens; cls_loss, cls_acc, cls_f1 of messages."""
        sums = {name: float(value) for name, value in gathered.items()}
        found = self.train_metrics(sums)
        found["top5_acc"] = ratio(sums["top5_correct"], sums["lm_count"], empty=float("nan"))
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give the same of the training batches, but for top5_acc; cls_loss is in bits per message."""
        found = super().train_metrics(facts) | token_metrics(facts)
        count, hits = facts["cls_count"], facts["cls_hits"]
        found["cls_loss"] = ratio(facts["cls_loss_sum"] * BITS_PER_NAT, count, empty=float("nan"))
        found["cls_acc"] = ratio(facts["cls_right"], count, empty=float("nan"))
        found["cls_precision"] = ratio(hits, facts["cls_found"], empty=0.0)
        found["cls_recall"] = ratio(hits, facts["cls_replaced"], empty=0.0)
        found["cls_f1"] = ratio(2 * hits, facts["cls_found"] + facts["cls_replaced"], empty=0.0)
        return found
