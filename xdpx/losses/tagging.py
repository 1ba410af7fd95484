"""A tag for each word. B rows, W words, C tags, L the longest text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import Batch, Gathered, Loss, loss_in_bits
from xdpx.losses.metrics import entity_precision_recall_f1, ratio
from xdpx.losses.parameters import TaggingParameters
from xdpx.models.pytorch.modules import crf

NO_WORD = -1


class Tagging(Loss):
    """Negative log likelihood of the tags: of each word alone, or, where the model has a CRF, of the whole chain.

    Source: Lample et al., "Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.2.
    """

    class Parameters(TaggingParameters):
        """What the tags are called."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "precision", "recall", "f1"))
    header: ClassVar[tuple[str, ...]] = ("tags",)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over texts, the number of words, and how many words are tagged right (by themselves)."""
        emissions, neighbours = self._scores(model, batch)
        mask = batch["net_input"]["word_mask"]
        right = (emissions.detach().argmax(dim=-1) == batch["target"]) & mask
        return _surprise(emissions, neighbours, batch["target"], mask), mask.sum(), {"correct": right.sum()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give pred (B, L), for labelled batches target (B, L), -1 where is no word; loss_sum and count of words."""
        emissions, neighbours = self._scores(model, batch)
        mask = batch["net_input"]["word_mask"]
        best = emissions.argmax(dim=-1) if neighbours is None else crf.best_chain(emissions, neighbours, mask)
        found = {"pred": self._row_wise(best, mask)}
        if "target" in batch:
            found["target"] = self._row_wise(batch["target"], mask)
            found |= {"loss_sum": _surprise(emissions, neighbours, batch["target"], mask), "count": mask.sum()}
        return found

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per word), acc over words; precision, recall and F1 over entities (rules of seqeval)."""
        target, pred = np.asarray(gathered["target"]), np.asarray(gathered["pred"])
        words = target != NO_WORD
        found = {
            "loss": loss_in_bits(gathered),
            "acc": ratio(float((pred == target)[words].sum()), float(words.sum()), empty=float("nan")),
        }
        tags = self.parameters.tags or [str(index) for index in range(int(max(target.max(), pred.max())) + 1)]
        scores = entity_precision_recall_f1(_named(target, target, tags), _named(pred, target, tags))
        return found | dict(zip(("precision", "recall", "f1"), scores, strict=True))

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per word) and acc of the training batches."""
        found = super().train_metrics(facts)
        return found | {"acc": ratio(facts["correct"], facts["count"], empty=float("nan"))}

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Give the tags of each text, with spaces between."""
        pred = np.asarray(predictions["pred"])
        names = labels or self.parameters.tags or [str(index) for index in range(int(pred.max()) + 1)]
        for tags in _named(pred, pred, names):
            yield [" ".join(tags)]

    def _scores(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        emissions, neighbours = model(**batch["net_input"])
        return emissions.float(), None if neighbours is None else neighbours.float()

    def _row_wise(self, tags_BW: Tensor, mask_BW: Tensor) -> Tensor:
        """Give tags (B, L): as wide for every batch, so that the rows of all can stand under each other."""
        room = self.parameters.max_len
        filled = tags_BW.masked_fill(~mask_BW, NO_WORD)[:, :room]
        return functional.pad(filled, (0, room - filled.shape[1]), value=NO_WORD).to(torch.int16)


def _surprise(emissions_BWC: Tensor, neighbours: Tensor | None, target_BW: Tensor, mask_BW: Tensor) -> Tensor:
    """Give the negative log likelihood of the right tags, summed over rows, in nats."""
    if neighbours is None:
        # Padding is ignored, not left out: how much there is only the device knows, and the host would wait for it.
        wanted = target_BW.masked_fill(~mask_BW, NO_WORD).flatten()
        return functional.cross_entropy(emissions_BWC.flatten(0, 1), wanted, ignore_index=NO_WORD, reduction="sum")
    chain = crf.chain_scores(emissions_BWC, neighbours, target_BW, mask_BW)
    return (crf.log_partition(emissions_BWC, neighbours, mask_BW) - chain).sum()


def _named(rows: Any, words: Any, names: Sequence[str]) -> list[list[str]]:
    """Give the names of the tags of each row, at the places where `words` holds a word."""
    return [[names[tag] for tag in row[there != NO_WORD]] for row, there in zip(rows, words, strict=True)]
