"""Masked tokens, and two views of each text that must find each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import BITS_PER_NAT, Batch, Gathered, Loss
from xdpx.losses.bert import per_text, token_metrics, token_sums
from xdpx.losses.metrics import ratio
from xdpx.losses.parameters import ContrastPretrainParameters
from xdpx.losses.simcse import contrast


class BertPretrainContrastLoss(Loss):
    """Two passes with different dropout: each text must find its other pass in the batch, and guess its masks.

    Each text weighs the same: `lm_weight` times the mean over its masked tokens, and the contrast.

    Source: Gao et al., "SimCSE", EMNLP 2021, equation 4 and section 6.3.
    """

    class Parameters(ContrastPretrainParameters):
        """How sharp the comparison is, and how much masked tokens weigh."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", "cl_loss", "cl_acc"))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over texts, their number, and what both tasks sum to and count."""
        facts = self.predictions(model, batch)
        loss_sum = facts.pop("loss_sum")
        return loss_sum, int(facts.pop("count")), {name: value.detach() for name, value in facts.items()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give sums only."""
        (tokens, vectors), (more_tokens, others) = (model(**batch["net_input"]) for _ in range(2))
        tokens, more_tokens = tokens.float(), more_tokens.float()
        logits, right = contrast(vectors.float(), others.float(), temperature=self.parameters.temperature)
        contrast_sum = functional.cross_entropy(logits, right, reduction="sum")
        guessed = (per_text(tokens, batch) + per_text(more_tokens, batch)) / 2.0
        return {
            **token_sums(tokens, batch["target"]),
            "loss_sum": contrast_sum + self.parameters.lm_weight * guessed,
            "count": torch.tensor(len(vectors)),
            "cl_loss_sum": contrast_sum,
            "cl_correct": (logits.detach().argmax(dim=-1) == right).sum(),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss and cl_loss (bits per text), lm_loss (bits per token), acc, top5_acc, cl_acc within batches."""
        sums = {name: float(value) for name, value in gathered.items()}
        found = self.train_metrics(sums)
        found["top5_acc"] = ratio(sums["top5_correct"], sums["lm_count"], empty=float("nan"))
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss, lm_loss, acc, cl_loss and cl_acc of the training batches."""
        found = super().train_metrics(facts) | token_metrics(facts)
        found["cl_loss"] = ratio(facts["cl_loss_sum"] * BITS_PER_NAT, facts["count"], empty=float("nan"))
        found["cl_acc"] = ratio(facts["cl_correct"], facts["count"], empty=float("nan"))
        return found
