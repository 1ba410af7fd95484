"""Sequence tagging: a tag for each word. B rows, W words, C tags, L the longest text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.logger import log
from xdpx.losses.answers import by_text
from xdpx.losses.base import Batch, Gathered, Loss, outputs_of
from xdpx.losses.parameters import LossParameters
from xdpx.metrics import (
    ClassScore,
    Judged,
    each_class,
    entity_counts,
    entity_precision_recall_f1,
    judge_tags,
    ratio,
    unmarked,
)
from xdpx.metrics.judging import TAG_COLUMNS
from xdpx.models.pytorch.modules.tagging import best_chain, chain_scores, log_partition

NO_WORD = -1


class Tagging(Loss):
    """Negative log likelihood of the tags: of each word separately or, if the model has a CRF, of the whole sequence.

    Source: Lample et al., "Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.2.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(LossParameters):
        """Keys of `tagging`."""

        tags: list[str] | None = declare.param(None, doc="Names of the tags, from meta.hjson.")
        max_len: int = declare.param(doc="Longest text in tokens, from meta.hjson.", gt=0)

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "precision", "recall", "f1"))
    header: ClassVar[tuple[str, ...]] = TAG_COLUMNS

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over texts, the number of words, and how many words have the right tag by argmax."""
        emissions, neighbours = self._scores(model, batch)
        mask = batch["net_input"]["word_mask"]
        right = (emissions.detach().argmax(dim=-1) == batch["target"]) & mask
        return _surprise(emissions, neighbours, batch["target"], mask), mask.sum(), {"correct": right.sum()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return pred (B, L), for labelled batches target (B, L), -1 for no word; loss_sum and count of words.

        `sample` (B,) is the position in the data, `window` (B,) the index of the window within its text.
        """
        emissions, neighbours = self._scores(model, batch)
        mask = batch["net_input"]["word_mask"]
        best = emissions.argmax(dim=-1) if neighbours is None else best_chain(emissions, neighbours, mask)
        found = {"pred": self._row_wise(best, mask)}
        if "window" in batch:
            found |= {"sample": batch["id"], "window": batch["window"]}
        if "target" in batch:
            found["target"] = self._row_wise(batch["target"], mask)
            found |= {"loss_sum": _surprise(emissions, neighbours, batch["target"], mask), "count": mask.sum()}
        return found

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per word), acc over words; precision, recall and F1 over entities (rules of seqeval)."""
        target, pred = np.asarray(gathered["target"]), np.asarray(gathered["pred"])
        words = target != NO_WORD
        self._tell_of_unmarked_tags()
        found = {
            "loss": self.mean_loss(gathered),
            "acc": ratio(float((pred == target)[words].sum()), float(words.sum()), empty=float("nan")),
        }
        scores = entity_precision_recall_f1(*self._tags_of(gathered), self.parameters.tags)
        return found | dict(zip(("precision", "recall", "f1"), scores, strict=True))

    def each_class(self, gathered: Gathered, labels: Sequence[str] | None) -> list[ClassScore]:
        """Return precision, recall and F1 of each type of entity."""
        del labels
        counts = entity_counts(*self._tags_of(gathered), self.parameters.tags)
        hits, predicted, wanted = np.array(list(counts.values()), np.int64).reshape(-1, 3).T
        return each_class(hits, predicted, wanted, list(counts))

    def judged(self, gathered: Gathered, labels: Sequence[str] | None) -> Judged:
        """Return an assessment of each text; its windows are joined."""
        del labels
        places = np.array([text[0] for text in _texts(gathered)], np.int64)
        return judge_tags(*self._tags_of(gathered), places, self.parameters.tags)

    def _tell_of_unmarked_tags(self) -> None:
        odd = unmarked(self.parameters.tags or ())
        if odd:
            log.warning(
                f"the tag '{odd[0]}' does not say where an entity begins, as B-PER or I-PER would: in precision, "
                "recall and f1 each run of equal tags counts as one entity. For parts of speech, look at acc.",
                once=True,
            )

    def _tags_of(self, gathered: Gathered) -> tuple[list[list[str]], list[list[str]]]:
        """Return the target tags and the predicted tags of the words of each text."""
        target, pred = np.asarray(gathered["target"]), np.asarray(gathered["pred"])
        names = self.parameters.tags or [str(index) for index in range(int(max(target.max(), pred.max())) + 1)]
        texts = _texts(gathered)
        return _named(target, target, names, texts), _named(pred, target, names, texts)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per word) and acc of the training batches."""
        found = super().train_metrics(facts)
        return found | {"acc": ratio(facts["correct"], facts["count"], empty=float("nan"))}

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Return for each window the tags of its text, with spaces between."""
        pred = np.asarray(predictions["pred"])
        names = labels or self.parameters.tags or [str(index) for index in range(int(pred.max()) + 1)]
        texts = _texts(predictions)
        cells = dict.fromkeys(range(len(pred)), [""])
        for windows, tags in zip(texts, _named(pred, pred, names, texts), strict=True):
            cells |= dict.fromkeys(windows.tolist(), [" ".join(tags)])
        return iter(cells.values())

    def _scores(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        emissions, neighbours = outputs_of(model, batch, "scores of the tags of each word", "scores of neighbours")
        return emissions.float(), None if neighbours is None else neighbours.float()

    def _row_wise(self, tags_BW: Tensor, mask_BW: Tensor) -> Tensor:
        """Return tags padded to (B, L), the same width for every batch, so that batches can be concatenated."""
        room = self.parameters.max_len
        filled = tags_BW.masked_fill(~mask_BW, NO_WORD)[:, :room]
        return functional.pad(filled, (0, room - filled.shape[1]), value=NO_WORD).to(torch.int16)


def _surprise(emissions_BWC: Tensor, neighbours: Tensor | None, target_BW: Tensor, mask_BW: Tensor) -> Tensor:
    """Return the negative log likelihood of the target tags, summed over rows, in nats."""
    if neighbours is None:
        # Padding is ignored, not removed: removing it would make the host wait for the device.
        wanted = target_BW.masked_fill(~mask_BW, NO_WORD).flatten()
        return functional.cross_entropy(emissions_BWC.flatten(0, 1), wanted, ignore_index=NO_WORD, reduction="sum")
    chain = chain_scores(emissions_BWC, neighbours, target_BW, mask_BW)
    return (log_partition(emissions_BWC, neighbours, mask_BW) - chain).sum()


def _texts(predictions: Mapping[str, Any]) -> list[NDArray[np.int64]]:
    """Return the row indices of the windows of each text, in order; one row per text if there are no windows."""
    if "window" not in predictions:
        return list(np.arange(len(predictions["pred"]))[:, None])
    return by_text(np.asarray(predictions["sample"]), np.asarray(predictions["window"]))


def _named(
    rows: NDArray[Any], words: NDArray[Any], names: Sequence[str], texts: Sequence[NDArray[np.int64]]
) -> list[list[str]]:
    """Return the names of the tags of each text, at the places where `words` holds a word."""
    return [[names[tag] for tag in rows[text][words[text] != NO_WORD].tolist()] for text in texts]
