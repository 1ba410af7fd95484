"""Prompt-based classification: cross-entropy over the label words that may fill the blanks of a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx import metrics
from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.base import Batch, Gathered
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.parameters import CrossEntropyParameters


class BertPromptLoss(CrossEntropy):
    """Cross-entropy over classes, plus `lm_weight` times that of the right tokens among the whole vocabulary.

    With R-Drop both are means over the two passes.

    The score of a class is the mean log probability of its tokens in the blanks; probabilities are their softmax.

    Source: Schick and Schuetze, EACL 2021 (PET), section 3.1, with the loss of the language model on the same blanks.
    """

    class Parameters(CrossEntropyParameters):
        """Keys of `bert_prompt_loss`."""

        use_r_dropout: bool = declare.param(True, doc="R-Drop: two passes with different dropout that must agree.")
        lm_weight: float = declare.param(
            1.0, ge=0, doc="Weight of the right tokens among the whole vocabulary.", alters="loss"
        )

    parameters: Parameters

    reads_class_logits = False
    reads_softmax = False
    metric_names = {**CrossEntropy.metric_names, "mlm_acc": None}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over rows, their number, and facts; the blanks of a row are averaged."""
        reader = _BlankScores.reading(model, batch)
        loss_sum, count, facts = super().__call__(reader, batch)
        likelihood = reader.mean_score().gather(1, batch["target"][:, None]).sum()
        return loss_sum - self.parameters.lm_weight * likelihood, count, {**facts, **reader.guessed(batch["target"])}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions of cross-entropy, and the count of tokens predicted right in the blanks."""
        reader = _BlankScores.reading(model, batch)
        found = super().predictions(reader, batch)
        return {**found, **(reader.guessed(batch["target"]) if "target" in batch else {})}

    def keys_by_class(self) -> list[str]:
        """Return the keys that are set and whose values go by the numbers of the classes: also the words of classes."""
        return [*super().keys_by_class(), "labels_ext"]

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return the metrics of cross-entropy, and mlm_acc: the share of blanks whose right token is likeliest."""
        return {**super().metrics(gathered), **_token_accuracy(gathered)}

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of cross-entropy, and mlm_acc, of the training batches."""
        return {**super().train_metrics(facts), **_token_accuracy(facts)}


class _BlankScores(nn.Module):
    """Wraps a model with logits (B * L, V) for L blanks in each of B texts; returns scores of classes, (B, C).

    It keeps the scores of every pass, and the likeliest tokens (B, L) of the last pass.
    """

    best: Tensor

    def __init__(self, model: nn.Module, verbalizers_CL: Tensor) -> None:
        super().__init__()
        self.model = model
        self.verbalizers = verbalizers_CL
        self._scores: list[Tensor] = []

    @classmethod
    def reading(cls, model: nn.Module, batch: Batch) -> _BlankScores:
        """Wrap a model for a batch. Raises ConfigError if its texts have no blanks."""
        if "verbalizers" not in batch:
            problem = "fills the blanks of a template, but texts have none."
            raise refusal("loss", problem, "Preprocess with processor: bert_prompt_single.")
        return cls(model, batch["verbalizers"])

    def forward(self, **net_input: Any) -> Tensor:
        """Return the mean log probability of the tokens of each class."""
        wanted_CL = self.verbalizers
        log_prob_BLV = self.model(**net_input).float().log_softmax(dim=-1).unflatten(0, (-1, wanted_CL.shape[1]))
        self.best = log_prob_BLV.detach().argmax(dim=-1)
        real_CL = wanted_CL >= 0
        index = wanted_CL.clamp(min=0).t().expand(len(log_prob_BLV), -1, -1)  # (B, L, C)
        each_BLC = log_prob_BLV.gather(2, index) * real_CL.t()
        self._scores.append(each_BLC.sum(dim=1) / real_CL.sum(dim=1))
        return self._scores[-1]

    def mean_score(self) -> Tensor:
        """Return the scores averaged over all passes."""
        return torch.stack(self._scores).mean(dim=0)

    def guessed(self, target: Tensor) -> dict[str, Tensor]:
        """Count the tokens of the right classes, and how many of them are the likeliest of the vocabulary."""
        wanted = self.verbalizers[target]
        return {"mlm_correct": (self.best == wanted).sum(), "mlm_count": (wanted >= 0).sum()}


def _token_accuracy(sums: Mapping[str, Any]) -> dict[str, float]:
    if "mlm_count" not in sums:
        return {}
    return {"mlm_acc": metrics.ratio(float(sums["mlm_correct"]), float(sums["mlm_count"]), empty=float("nan"))}
