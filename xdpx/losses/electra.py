"""Replaced-token detection. B texts, T positions, M masks, V tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import BITS_PER_NAT, Batch, Gathered, Loss
from xdpx.losses.bert import per_text, token_metrics, token_sums
from xdpx.losses.metrics import ratio
from xdpx.losses.parameters import ElectraParameters

OF_REPLACED = ("rtd_loss", "rtd_acc", "rtd_precision", "rtd_recall")


class ElectraLoss(Loss):
    """The generator guesses masked tokens; the encoder tells which tokens the generator got wrong.

    Each text weighs the same: the mean over its masked tokens, plus `rtd_weight` times the mean over all its tokens.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(ElectraParameters):
        """How much the tasks weigh."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_REPLACED))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over texts, their number, and what both tasks sum to and count."""
        facts = self.predictions(model, batch)
        loss_sum = facts.pop("loss_sum")
        return loss_sum, int(facts.pop("count")), {name: value.detach() for name, value in facts.items()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give sums only."""
        guesses, drawn, told = model(**batch["net_input"])
        guesses, told, mask = guesses.float(), told.float(), batch["net_input"]["attention_mask"].bool()
        replaced = torch.zeros_like(mask).flatten()
        replaced = replaced.index_copy(0, batch["net_input"]["masked_positions"], drawn != batch["target"])
        replaced = replaced.view_as(mask)
        losses = functional.binary_cross_entropy_with_logits(told, replaced.to(told.dtype), reduction="none") * mask
        detection = (losses.sum(dim=1) / mask.sum(dim=1)).sum()
        known = self.parameters
        found = (told.detach() > 0) & mask
        return {
            **token_sums(guesses, batch["target"]),
            "loss_sum": known.lm_weight * per_text(guesses, batch) + known.rtd_weight * detection,
            "count": torch.tensor(len(mask)),
            "rtd_loss_sum": losses.sum(),
            "rtd_count": mask.sum(),
            "rtd_right": ((found == replaced) & mask).sum(),
            "rtd_hits": (found & replaced).sum(),
            "rtd_found": found.sum(),
            "rtd_replaced": replaced.sum(),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per text), lm_loss, acc and top5_acc of the generator, and the detection's measures."""
        sums = {name: float(value) for name, value in gathered.items()}
        found = self.train_metrics(sums)
        found["top5_acc"] = ratio(sums["top5_correct"], sums["lm_count"], empty=float("nan"))
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give the same of the training batches, but for top5_acc; rtd_loss is in bits per token."""
        found = super().train_metrics(facts) | token_metrics(facts)
        found["rtd_loss"] = ratio(facts["rtd_loss_sum"] * BITS_PER_NAT, facts["rtd_count"], empty=float("nan"))
        found["rtd_acc"] = ratio(facts["rtd_right"], facts["rtd_count"], empty=float("nan"))
        found["rtd_precision"] = ratio(facts["rtd_hits"], facts["rtd_found"], empty=0.0)
        found["rtd_recall"] = ratio(facts["rtd_hits"], facts["rtd_replaced"], empty=0.0)
        return found
