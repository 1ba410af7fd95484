"""Vectors of the same thing near each other, those of other rows far away. B rows, K views, H width."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.engines.pytorch.collectives import gather_with_gradient
from xdpx.losses.base import Batch, Gathered, Loss, loss_in_bits
from xdpx.losses.full_precision import product
from xdpx.losses.metrics import ratio
from xdpx.losses.metrics.named import OF_SCORES
from xdpx.losses.parameters import ContrastParameters


class SimCSELoss(Loss):
    """Cross-entropy of finding the second view of a row among those of all rows of the batch, by cosine.

    A third view of each row, a hard negative, joins the candidates. The rows of a batch are each other's negatives, so
    `batch_size` matters, and `update_freq` does not replace it. Several processes that train together compare with the
    rows of all; scores are those of a batch of one process, so that the number of processes does not change them.

    Source: Gao et al., "SimCSE", EMNLP 2021, equations 4 and 5.
    """

    class Parameters(ContrastParameters):
        """How sharp the comparison is."""

    parameters: Parameters

    compares_rows = True
    metric_names = {**dict.fromkeys(("loss", "acc")), **OF_SCORES}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over the rows of the batch, their number, and how many find their second view."""
        logits, target = self._choices(model(**batch["net_input"]))
        correct = (logits.detach().argmax(dim=-1) == target).sum()
        return functional.cross_entropy(logits, target, reduction="sum"), len(target), {"correct": correct}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give score (B,), the cosine of the first two views; target (B,) of labelled rows; and sums over rows."""
        vectors = model(**batch["net_input"])
        logits, target = self._choices(vectors)
        found = {
            "score": functional.cosine_similarity(vectors[:, 0].float(), vectors[:, 1].float(), dim=-1),
            "loss_sum": functional.cross_entropy(logits, target, reduction="sum"),
            "count": torch.tensor(len(target)),
            **self.counts(logits, target),
        }
        return found | ({"target": batch["target"]} if "target" in batch else {})

    def counts(self, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Give what of the choices (B, N) adds up over batches: how many rows find their second view."""
        return {"correct": (logits.argmax(dim=-1) == target).sum()}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per row) and acc, the share of rows that find their second view within their batch."""
        return self.train_metrics({name: float(gathered[name]) for name in ("loss_sum", "count", "correct")})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per row) and acc of the training batches."""
        return {"loss": loss_in_bits(facts), "acc": ratio(facts["correct"], facts["count"], empty=float(np.nan))}

    def _choices(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        first, others = vectors[:, 0].float(), vectors[:, 1:].float()
        everywhere, begin = gather_in_training(others)
        candidates = everywhere.transpose(0, 1).flatten(0, 1)
        return contrast(first, candidates, temperature=self.parameters.temperature, begin=begin)


def gather_in_training(rows: Tensor) -> tuple[Tensor, int]:
    """Give the rows of all processes and where those of this one begin; without gradients, those of this one alone.

    All processes must train when one does.
    """
    return gather_with_gradient(rows) if torch.is_grad_enabled() else (rows, 0)


def contrast(queries: Tensor, candidates: Tensor, *, temperature: float, begin: int = 0) -> tuple[Tensor, Tensor]:
    """Compare each query with each candidate; from `begin` on the candidates are the right ones, in order.

    Args:
        queries: (B, H).
        candidates: (N, H), N at least begin + B.
        temperature: what cosines are divided by.
        begin: which candidate is the right one of the first query.

    Returns:
        (logits (B, N), index of the right candidate (B,)).
    """
    logits = product(functional.normalize(queries, dim=-1), functional.normalize(candidates, dim=-1).T) / temperature
    return logits, begin + torch.arange(len(queries), device=queries.device)
