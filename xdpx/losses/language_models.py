"""Losses of language models: the next token, or masked tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.losses.base import Batch, Gathered, Loss, output_with_axes
from xdpx.losses.bert import masks_of, right_tokens
from xdpx.losses.parameters import LossParameters
from xdpx.metrics import ratio

NO_TARGET = -100
"""Target of positions that are not predicted."""


class CausalLM(Loss):
    """Negative log likelihood of each token given those before it; the model returns logits for every position."""

    metric_names = dict.fromkeys(("loss", "acc", "ppl"))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over target tokens, their number, and how many are predicted right."""
        sums = self.predictions(model, batch)
        return sums["loss_sum"], sums["count"], {"correct": sums["correct"]}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return sums only (loss_sum, count, correct): a row of logits per token would fill the memory."""
        logits = output_with_axes(model, batch, "texts", "tokens", "words of the vocabulary")
        target = batch["target"]
        flat = logits.flatten(0, 1), target.flatten()
        return {
            "loss_sum": functional.cross_entropy(*flat, reduction="sum", ignore_index=NO_TARGET),
            "count": torch.count_nonzero(target != NO_TARGET),
            "correct": torch.count_nonzero(logits.detach().argmax(dim=-1) == target),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per token), acc, and ppl: e to the power of the loss in nats."""
        return self.train_metrics({name: float(gathered[name]) for name in ("loss_sum", "count", "correct")})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per token), acc and ppl of the training batches."""
        found = super().train_metrics(facts)
        found["acc"] = ratio(facts["correct"], facts["count"], empty=float("nan"))
        found["ppl"] = float(np.exp(ratio(facts["loss_sum"], facts["count"], empty=float("nan"))))
        return found


class MaskedLM(Loss):
    """Negative log likelihood of masked tokens. The model returns one row of logits per masked token.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1, task 1.
    """

    class Parameters(LossParameters):
        """Keys of `masked_lm`."""

        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "top5_acc", "ppl"))

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over masked tokens, their number, and how many are predicted right."""
        logits, target = self.logits(model, batch), batch["target"]
        loss = functional.cross_entropy(logits, target, reduction="sum")
        return loss, len(target), right_tokens(logits.detach(), target, scored=False)

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return sums only (loss_sum, count, correct, top5_correct): logits per token would fill the memory."""
        logits, target = self.logits(model, batch), batch["target"]
        return {
            "loss_sum": functional.cross_entropy(logits, target, reduction="sum"),
            "count": torch.tensor(len(target)),
            **right_tokens(logits, target, scored=True),
        }

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return what the model gives for a batch: a row for each masked token.

        Raises:
            ConfigError: it gives another shape, or logits of the classes of whole texts.
        """
        logits = output_with_axes(model, batch, "masked tokens", "words of the vocabulary")
        if logits.shape[1] == self.parameters.num_classes:  # a row for each text has the same shape
            masks_of(batch["net_input"])
        return logits

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per masked token), acc, and top5_acc: the share with the token among the five best."""
        sums = {name: float(gathered[name]) for name in ("loss_sum", "count", "correct", "top5_correct")}
        found = self.train_metrics(sums)
        found["top5_acc"] = ratio(sums["top5_correct"], sums["count"], empty=float("nan"))
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per masked token) and acc of the training batches."""
        found = super().train_metrics(facts)
        found["acc"] = ratio(facts["correct"], facts["count"], empty=float("nan"))
        return found
