"""Contrastive losses: pull views of a row together. B rows, K views, H width, C prototypes, N passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.engines.pytorch.collectives import gather_rows, gather_with_gradient
from xdpx.losses.arithmetic import product
from xdpx.losses.base import Batch, Gathered, output_with_axes, tensors_of
from xdpx.losses.bert import BesideTokens, masked_tokens, masks_of, token_metrics
from xdpx.losses.graded import Graded
from xdpx.metrics import ratio
from xdpx.metrics.named import OF_SCORES


class SimCSELoss(Graded):
    """Cross-entropy of identifying the second view of a row among those of all rows of the batch, by cosine.

    A third view of each row, a hard negative, is added to the candidates. The rows of a batch are each other's
    negatives, so `batch_size` matters, and `update_freq` does not replace it. Copies of the right text, token for
    token, are not. In training, candidates are the rows of all processes; in evaluation, those of one process's batch,
    so that the number of processes does not matter.

    Source: Gao et al., "SimCSE", EMNLP 2021, equations 4 and 5.
    """

    class Parameters(Graded.Parameters):
        """Keys of `simcse`."""

        temperature: float = declare.param(0.05, gt=0, doc="Temperature: the divisor of cosines; smaller is sharper.")

    parameters: Parameters

    compares_rows = True
    spans_processes = True
    within_batch: ClassVar[Sequence[str]] = ("loss", "acc")
    metric_names = {**dict.fromkeys(("loss", "acc")), **OF_SCORES}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the rows of the batch, their number, and the number with the right second view."""
        vectors = views_of(model, batch)
        self.tell_of_equal_passes(vectors[:, 0], vectors[:, 1])
        logits, target = self._choices(vectors, batch)
        correct = (logits.detach().argmax(dim=-1) == target).sum()
        return functional.cross_entropy(logits, target, reduction="sum"), len(target), {"correct": correct}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return score (B,), the cosine of the first two views; for labelled rows target (B,), the grade; and sums."""
        vectors = views_of(model, batch)
        logits, target = self._choices(vectors, batch)
        score = functional.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)
        found = {
            "score": score,
            "loss_sum": functional.cross_entropy(logits, target, reduction="sum"),
            "count": torch.tensor(len(target)),
            **self.counts(logits, target),
        }
        return found | ({"target": self.grades(batch["target"], score)} if "target" in batch else {})

    @property
    def takes_texts_for_alike(self) -> bool:
        """True: grades are for scoring only."""
        return True

    @property
    def reads_grades(self) -> bool:
        """Whether a metric compares cosines with the labels, as `spearman` does."""
        return bool({*self.parameters.metrics, self.parameters.major_metric} & OF_SCORES.keys())

    def counts(self, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return the counts to sum over batches, from logits (B, N): rows that identify their second view."""
        return {"correct": (logits.argmax(dim=-1) == target).sum()}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per row) and acc, the share of rows that identify their second view within their batch."""
        return self.train_metrics({name: float(gathered[name]) for name in ("loss_sum", "count", "correct")})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per row) and acc of the training batches."""
        return {"loss": self.mean_loss(facts), "acc": ratio(facts["correct"], facts["count"], empty=float(np.nan))}

    def _choices(self, vectors: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        everywhere, begin = gather_in_training(vectors[:, 1:])
        candidates = everywhere.transpose(0, 1).flatten(0, 1)
        texts = candidate_texts(batch["net_input"], vectors)
        texts = None if texts is None else as_in_training(texts).T.flatten()
        return contrast(vectors[:, 0], candidates, texts, temperature=self.parameters.temperature, begin=begin)


def views_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the vectors of the views of each row, (B, K, H). Raises ConfigError for a model without views."""
    return output_with_axes(model, batch, "rows", "views", "width of a vector")


def gather_in_training(rows: Tensor) -> tuple[Tensor, int]:
    """Return the rows of all processes and the index of the first of this one; without gradients, only its own rows.

    With gradients, call it on all processes.
    """
    return gather_with_gradient(rows) if torch.is_grad_enabled() else (rows, 0)


def as_in_training(rows: Tensor) -> Tensor:
    """Return rows without gradients of the processes whose rows `gather_in_training` returns."""
    gathered: Tensor = gather_rows(rows) if torch.is_grad_enabled() else rows
    return gathered


def contrast(
    queries: Tensor, candidates: Tensor, texts: Tensor | None = None, *, temperature: float, begin: int = 0
) -> tuple[Tensor, Tensor]:
    """Compare each query with each candidate; candidate `begin` + i is the right one for query i.

    Args:
        queries: (B, H).
        candidates: (N, H), N at least begin + B.
        texts: a number for each candidate, (N,), equal for equal texts; None if all are different.
        temperature: what cosines are divided by.
        begin: index of the right candidate of the first query.

    Returns:
        (logits (B, N), -inf for other candidates with the text of the right one; index of the right candidate (B,)).
    """
    logits = product(functional.normalize(queries, dim=-1), functional.normalize(candidates, dim=-1).T) / temperature
    right = begin + torch.arange(len(queries), device=queries.device)
    if texts is None:
        return logits, right
    places = torch.arange(len(texts), device=texts.device)
    copies = (texts[right][:, None] == texts) & (places != right[:, None])
    return logits.masked_fill(copies, -torch.inf), right


ODD = 0x5851F42D4C957F2D
"""Base of the numbers of texts: that of a congruential generator with 64 bits (Knuth, MMIX)."""


def text_numbers(ids: Tensor, mask: Tensor | None) -> Tensor:
    """Return a number for each text, the same for the same tokens however padded: their polynomial modulo 2^64.

    That two different texts of a batch get the same number is as good as impossible.

    Args:
        ids: of tokens, (..., T).
        mask: true (or 1) at real tokens, (..., T); None if all are.
    """
    powers = torch.full((ids.shape[-1],), ODD, dtype=torch.int64, device=ids.device).cumprod(0)
    terms = (ids.long() + 1) * powers  # overflow wraps around
    return (terms if mask is None else terms * mask.bool()).sum(dim=-1)


def candidate_texts(net_input: Mapping[str, Any], vectors: Tensor) -> Tensor | None:
    """Return the numbers of the texts of all views (B, K, H) but the first, (B, K - 1); None if they are unknown."""
    if "passage_ids" in net_input:
        numbers = text_numbers(net_input["passage_ids"], net_input.get("passage_mask"))[..., None]
    elif "input_ids" in net_input:
        numbers = text_numbers(net_input["input_ids"], net_input.get("attention_mask"))[..., 1:]
    else:
        return None
    return numbers if numbers.shape == (len(vectors), vectors.shape[1] - 1) else None


def unmasked_texts(batch: Batch) -> Tensor:
    """Return the numbers of the texts of a batch with masked tokens, (B,), by the tokens that were masked."""
    given = batch["net_input"]
    ids = given["input_ids"].long().flatten().index_copy(0, masks_of(given), batch["target"])
    return text_numbers(ids.view_as(given["input_ids"]), given.get("attention_mask"))


class BertDPRLoss(SimCSELoss):
    """Cross-entropy of a question's own passage against the passages of all rows of the batch, by cosine.

    The negatives are those of a micro-batch, on all processes that train together, so `batch_size` matters, and
    `update_freq` does not replace it. The same passage in another row is no negative.

    Source: Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020, equation 2, with in-batch negatives (section 3.2)
    and cosines over a temperature in place of the dot product.
    """

    class Parameters(SimCSELoss.Parameters):
        """Keys of `bert_dpr`."""

    parameters: Parameters

    within_batch = ("loss", "acc", "in_batch_mrr")
    metric_names = {**dict.fromkeys(("loss", "acc", "in_batch_mrr")), **OF_SCORES}

    def counts(self, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return how many questions identify their passage, and the sum of the reciprocal ranks of the right ones.

        A passage with the same score ranks before the right one, so that a model which scores all alike gains nothing.
        """
        rank = (~(logits < logits.gather(1, target[:, None]))).sum(dim=1)  # the right one itself is counted
        return super().counts(logits, target) | {"reciprocal": (1.0 / rank).sum()}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per question), acc and the mean reciprocal rank, both within batches."""
        mean = ratio(float(gathered["reciprocal"]), float(gathered["count"]), empty=float("nan"))
        return super().metrics(gathered) | {"in_batch_mrr": mean}


class BertPretrainContrastLoss(BesideTokens):
    """Two passes with different dropout: each text must identify its other pass in the batch, and its masked tokens.

    The loss of a text is -log(exp(s_ii / t) / sum_j exp(s_ij / t)), s_ij the cosine of its vector of the first pass and
    text j's of the second, and `lm_weight` times the mean loss of its masked tokens over both passes. The texts j
    are those of all processes that train together, without other copies of text i.

    Source: Gao et al., "SimCSE", EMNLP 2021, equation 4 and section 6.3; there texts are contrasted without masks.
    """

    class Parameters(SimCSELoss.Parameters):
        """Keys of `bert_pretrain_cl`."""

        lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the masked tokens.", alters="loss")

    parameters: Parameters

    compares_rows = True
    spans_processes = True
    within_batch = ("loss", "cl_loss", "cl_acc")
    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", "cl_loss", "cl_acc"))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Return the sums of both tasks; those of masked tokens are the means of the two passes."""
        names = "logits of masked tokens", "vectors of texts"
        (tokens, vectors), (more_tokens, others) = (tensors_of(model, batch, *names) for _ in range(2))
        self.tell_of_equal_passes(vectors, others)
        guessed, counted = masked_tokens(tokens, batch, scored=scored)
        guessed_again, counted_again = masked_tokens(more_tokens, batch, scored=scored)
        candidates, begin = gather_in_training(others)
        texts = as_in_training(unmasked_texts(batch))
        logits, right = contrast(vectors, candidates, texts, temperature=self.parameters.temperature, begin=begin)
        contrast_sum = functional.cross_entropy(logits, right, reduction="sum")
        return {
            **{name: (counted[name] + counted_again[name]) / 2.0 for name in counted},
            "loss_sum": contrast_sum + self.parameters.lm_weight * (guessed + guessed_again) / 2.0,
            "count": torch.tensor(len(vectors)),
            "cl_loss_sum": contrast_sum,
            "cl_correct": (logits.detach().argmax(dim=-1) == right).sum(),
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss, lm_loss, acc, cl_loss and cl_acc of the training batches."""
        found = super().train_metrics(facts) | token_metrics(facts, self.in_unit)
        found["cl_loss"] = self.in_unit(facts["cl_loss_sum"], facts["count"])
        found["cl_acc"] = ratio(facts["cl_correct"], facts["count"], empty=float("nan"))
        return found


SMOOTHING = 10.0
"""Alpha of the paper: keeps the density estimate of small clusters from becoming extreme."""


class PrototypeContrastLoss(SimCSELoss):
    """The loss of `simcse`, plus a contrast with prototypes: each row must identify its own among others.

    A row's prototype is the nearest of each set that task `bert_cl` computed by k-means, or with `supervised` the mean
    of its class. Cosines are divided by the density of the cluster, which balances dense and loose clusters. Held-out
    data are scored by the first part alone, which needs no prototypes.

    Source: Li et al., "Prototypical Contrastive Learning of Unsupervised Representations", ICLR 2021, equations 11
    and 12, with the contrast of rows of Gao et al., "SimCSE", EMNLP 2021.
    """

    class Parameters(SimCSELoss.Parameters):
        """Keys of `bert_cl`."""

        supervised: bool = declare.param(
            False, doc="The prototype of a row is that of its class; else the nearest one."
        )
        negative_proto_size: int = declare.param(
            256, ge=0, doc="Other prototypes that each row is compared with, drawn again each time; 0: all."
        )
        lambda_proto_loss: float = declare.param(0.01, ge=0, doc="Weight of the contrast with prototypes.")

    parameters: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.prototypes: list[tuple[Tensor, Tensor]] = []

    @property
    def takes_texts_for_alike(self) -> bool:
        """Whether labels are not those of prototypes."""
        return not self.parameters.supervised

    def state_dict(self) -> dict[str, Any]:
        """Return the prototypes, for resuming."""
        return {"prototypes": [list(each) for each in self.prototypes]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.prototypes = [(centres, density) for centres, density in saved["prototypes"]]

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the rows of the batch, their number, and facts: correct, and perhaps proto_loss."""
        vectors = views_of(model, batch)
        self.tell_of_equal_passes(vectors[:, 0], vectors[:, 1])
        logits, target = self._choices(vectors, batch)
        loss_sum = functional.cross_entropy(logits, target, reduction="sum")
        facts = {"correct": (logits.detach().argmax(dim=-1) == target).sum()}
        if self.prototypes:
            classes = batch["target"] if self.parameters.supervised else None
            contrast = self.contrast(vectors[:, 0], classes)
            facts["proto_loss"] = contrast.detach()
            loss_sum = loss_sum + self.parameters.lambda_proto_loss * contrast
        return loss_sum, len(target), facts

    def contrast(self, vectors_BH: Tensor, classes: Tensor | None) -> Tensor:
        """Return the cross-entropy of identifying prototypes, in nats, summed over rows and averaged over the sets."""
        rows_BH = functional.normalize(vectors_BH, dim=-1)
        sums = [
            self._contrast_with(rows_BH, centres.to(rows_BH), density.to(rows_BH), classes)
            for centres, density in self.prototypes
        ]
        return torch.stack(sums).mean()

    def _contrast_with(self, rows_BH: Tensor, centres_CH: Tensor, density_C: Tensor, classes: Tensor | None) -> Tensor:
        cosine_BC = product(rows_BH, centres_CH.T)
        own_B = cosine_BC.detach().argmax(dim=-1) if classes is None else classes
        logits_BC = cosine_BC / density_C
        others = len(centres_CH) - 1
        if 0 < self.parameters.negative_proto_size < others:
            # The same number of negatives is drawn for each row; the others are masked.
            draws = torch.rand_like(logits_BC).scatter_(1, own_B[:, None], 2.0)
            left_out = draws.topk(others - self.parameters.negative_proto_size, dim=-1, largest=False).indices
            logits_BC = logits_BC.scatter(1, left_out, -torch.inf)
        return functional.cross_entropy(logits_BC, own_B, reduction="sum")

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per row), acc, and once there are prototypes proto_loss, in nats per row."""
        found = super().train_metrics(facts)
        if "proto_loss" in facts:
            found["proto_loss"] = ratio(facts["proto_loss"], facts["count"], empty=float("nan"))
        return found


def density_of(rows_NH: Tensor, centres_CH: Tensor, cluster_N: Tensor, *, temperature: float) -> Tensor:
    """Return the density parameter phi of each cluster (large for loose clusters), (C,), scaled to mean `temperature`.

    Source: Li et al., ICLR 2021, equation 12.
    """
    away_N = (rows_NH - centres_CH[cluster_N]).norm(dim=-1)
    count_C = cluster_N.bincount(minlength=len(centres_CH))
    total_C = away_N.new_zeros(len(centres_CH)).index_add(0, cluster_N, away_N)
    spread_C = total_C / (count_C.clamp(min=1) * (count_C + SMOOTHING).log())
    spread_C = torch.where(count_C > 1, spread_C, spread_C.max())  # a single row says nothing about spread
    mean = spread_C.mean()
    scaled: Tensor = spread_C / mean * temperature if mean > 0 else torch.full_like(spread_C, temperature)
    return scaled.clamp(min=temperature / SMOOTHING)


def means_of_classes(rows_NH: Tensor, classes_N: Sequence[int] | Tensor, count: int) -> Tensor:
    """Return the mean of the rows of each class, normalized to length 1, (count, H)."""
    index = torch.as_tensor(classes_N)
    total = rows_NH.new_zeros(count, rows_NH.shape[1]).index_add(0, index, rows_NH)
    return functional.normalize(total, dim=-1)
