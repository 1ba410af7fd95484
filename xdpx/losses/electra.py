"""Replaced-token detection. B texts, T positions, M masks, V tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xdpx.losses.base import Batch
from xdpx.losses.bert import BesideTokens, detection_metrics, detection_sums, masked_tokens, token_metrics
from xdpx.losses.parameters import ElectraParameters

OF_REPLACED = ("rtd_loss", "rtd_acc", "rtd_precision", "rtd_recall", "rtd_f1")


class ElectraLoss(BesideTokens):
    """The generator guesses masked tokens; the encoder tells which tokens the generator got wrong.

    Each text weighs the same: the mean over its masked tokens, plus `rtd_weight` times the mean over all its tokens.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(ElectraParameters):
        """How much the tasks weigh."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_REPLACED))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Give the sums of both tasks."""
        guesses, drawn, told = model(**batch["net_input"])
        guesses, told, mask = guesses.float(), told.float(), batch["net_input"]["attention_mask"].bool()
        replaced = torch.zeros_like(mask).flatten()
        replaced = replaced.index_copy(0, batch["net_input"]["masked_positions"], drawn != batch["target"])
        replaced = replaced.view_as(mask)
        detected = detection_sums(told, replaced, mask)
        known = self.parameters
        guessed, counted = masked_tokens(guesses, batch, scored=scored)
        return {
            **counted,
            "loss_sum": known.lm_weight * guessed + known.rtd_weight * detected.pop("mean_sum"),
            "count": torch.tensor(len(mask)),
            **{f"rtd_{name}": value for name, value in detected.items()},
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per text), lm_loss and acc of the generator, and the detection's measures."""
        return super().train_metrics(facts) | token_metrics(facts) | detection_metrics(facts, "rtd_")
