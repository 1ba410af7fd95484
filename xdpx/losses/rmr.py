"""Random-message replacement. B sessions, K messages, M masked tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xdpx.losses.base import Batch
from xdpx.losses.bert import BesideTokens, detection_metrics, detection_sums, masked_tokens, token_metrics
from xdpx.losses.parameters import BertLossParameters

OF_MESSAGES = ("cls_loss", "cls_acc", "cls_precision", "cls_recall", "cls_f1")


class RMRLoss(BesideTokens):
    """Which messages of a session are another's, plus `lm_weight` times the mean over the session's masked tokens.

    Each session weighs the same: the mean over its messages.
    """

    class Parameters(BertLossParameters):
        """How much the masked tokens weigh."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_MESSAGES))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Give the sums of both tasks."""
        tokens, told = (logits.float() for logits in model(**batch["net_input"]))
        real = batch["net_input"]["attention_mask"].bool().any(dim=-1)
        detected = detection_sums(told, batch["cls_target"].bool() & real, real)
        guessed, counted = masked_tokens(tokens, batch, scored=scored)
        return {
            **counted,
            "loss_sum": detected.pop("mean_sum") + self.parameters.lm_weight * guessed,
            "count": torch.tensor(len(real)),
            **{f"cls_{name}": value for name, value in detected.items()},
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per session), lm_loss and acc of tokens, and the measures of messages."""
        return super().train_metrics(facts) | token_metrics(facts) | detection_metrics(facts, "cls_")
