"""Masked tokens, and two views of each text that must find each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import BITS_PER_NAT, Batch
from xdpx.losses.bert import BesideTokens, masked_tokens, token_metrics
from xdpx.losses.metrics import ratio
from xdpx.losses.parameters import ContrastPretrainParameters
from xdpx.losses.simcse import contrast, gather_in_training


class BertPretrainContrastLoss(BesideTokens):
    """Two passes with different dropout: each text must find its other pass in the batch, and guess its masks.

    A text costs -log(exp(s_ii / t) / sum_j exp(s_ij / t)), s_ij the cosine of its vector of the first pass and text j's
    of the second, and `lm_weight` times the mean loss of its masked tokens over both passes. The texts j are those of
    all processes that train together.

    Source: Gao et al., "SimCSE", EMNLP 2021, equation 4 and section 6.3; there texts are contrasted without masks.
    """

    class Parameters(ContrastPretrainParameters):
        """How sharp the comparison is, and how much masked tokens weigh."""

    parameters: Parameters

    compares_rows = True
    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", "cl_loss", "cl_acc"))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Give the sums of both tasks; those of masked tokens are the means of the two passes."""
        (tokens, vectors), (more_tokens, others) = (model(**batch["net_input"]) for _ in range(2))
        guessed, counted = masked_tokens(tokens.float(), batch, scored=scored)
        guessed_again, counted_again = masked_tokens(more_tokens.float(), batch, scored=scored)
        candidates, begin = gather_in_training(others.float())
        logits, right = contrast(vectors.float(), candidates, temperature=self.parameters.temperature, begin=begin)
        contrast_sum = functional.cross_entropy(logits, right, reduction="sum")
        return {
            **{name: (counted[name] + counted_again[name]) / 2.0 for name in counted},
            "loss_sum": contrast_sum + self.parameters.lm_weight * (guessed + guessed_again) / 2.0,
            "count": torch.tensor(len(vectors)),
            "cl_loss_sum": contrast_sum,
            "cl_correct": (logits.detach().argmax(dim=-1) == right).sum(),
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss, lm_loss, acc, cl_loss and cl_acc of the training batches."""
        found = super().train_metrics(facts) | token_metrics(facts)
        found["cl_loss"] = ratio(facts["cl_loss_sum"] * BITS_PER_NAT, facts["count"], empty=float("nan"))
        found["cl_acc"] = ratio(facts["cl_correct"], facts["count"], empty=float("nan"))
        return found
