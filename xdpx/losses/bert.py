"""Masked language modelling together with another task: class of a text, replaced tokens, or replaced messages.

B texts or sessions, K messages, T positions, M masked tokens, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx import metrics
from xdpx.config import parameters as declare
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.losses.arithmetic import tally
from xdpx.losses.base import Batch, Gathered, Loss, outputs_of, tensors_of
from xdpx.losses.parameters import LossParameters
from xdpx.metrics.named import CLASSIFICATION

InUnit = Callable[[float, float], float]
"""`Loss.in_unit`: (sum in nats, count) -> the mean in the unit of the loss."""

OF_TOKENS = ("lm_loss", "acc", "top5_acc")


class BertLoss(Loss):
    """Cross-entropy of the class of each text, plus `lm_weight` times the mean cross-entropy of its masked tokens.

    The model returns logits of both. Each text has the same weight, so that batches and processes do not matter.
    Without labels only the masked tokens are trained.

    Source: Devlin et al., "BERT", NAACL 2019, appendix A.2.
    """

    class Parameters(LossParameters):
        """Keys of `bert`."""

        lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the masked tokens.", alters="loss")
        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    parameters: Parameters

    metric_names = {
        **dict.fromkeys(("loss", *OF_TOKENS, "cls_loss", "cls_acc")),
        "cls_auc": ("num_classes", "is", 2),
        **CLASSIFICATION,
    }

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over texts, their number, and the sums and counts of both tasks."""
        found = self._found(model, batch, scored=False)
        facts = {name: value for name, value in found.items() if value.ndim == 0 and name not in {"loss_sum", "count"}}
        if "target" in found:
            facts["cls_correct"] = (found["pred"] == found["target"]).sum()
        return found["loss_sum"], len(found["pred"]), {name: value.detach() for name, value in facts.items()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return prob (B, C), pred (B), for labelled data target (B), and for masked tokens sums only."""
        return self._found(model, batch, scored=True)

    def _found(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        tokens, classes = tensors_of(model, batch, "logits of masked tokens", "logits of texts")
        texts = len(classes)
        guessed, found = masked_tokens(tokens, batch, scored=scored)
        loss_sum = self.parameters.lm_weight * guessed
        prob = classes.detach().softmax(dim=-1)
        found |= {"prob": prob, "pred": prob.argmax(dim=-1), "count": torch.tensor(texts)}
        if "cls_target" in batch:
            of_texts = functional.cross_entropy(classes, batch["cls_target"], reduction="sum")
            loss_sum = loss_sum + of_texts
            found |= {"target": batch["cls_target"], "cls_loss_sum": of_texts}
        return {**found, "loss_sum": loss_sum}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per text), lm_loss (nats per token), acc, top5_acc; cls_loss, cls_acc, cls_auc."""
        sums = {name: float(value) for name, value in gathered.items() if np.ndim(value) == 0}
        if "target" in gathered:
            pred, target, prob = (np.asarray(gathered[name]) for name in ("pred", "target", "prob"))
            sums["cls_correct"] = float((pred == target).sum())
        found = self.train_metrics(sums)
        found["top5_acc"] = metrics.ratio(sums["top5_correct"], sums["lm_count"], empty=float("nan"))
        if "target" in gathered and prob.shape[1] == 2:
            found["cls_auc"] = metrics.area_under_curve(target, prob[:, 1])
        return found

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per text), lm_loss (nats per token) and acc; for labelled data cls_loss and cls_acc."""
        found = super().train_metrics(facts) | token_metrics(facts, self.in_unit)
        if "cls_loss_sum" in facts:
            found["cls_loss"] = self.in_unit(facts["cls_loss_sum"], facts["count"])
            found["cls_acc"] = metrics.ratio(facts["cls_correct"], facts["count"], empty=float("nan"))
        return found


class BesideTokens(Loss):
    """Base of losses that combine masked tokens with a task on whole texts, and return sums only."""

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Return `loss_sum` and `count` of texts, and the sums of `masked_tokens`. To be overridden."""
        raise NotImplementedError

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over texts, their number, and the sums and counts of both tasks."""
        facts = self.sums(model, batch, scored=False)
        loss_sum = facts.pop("loss_sum")
        return loss_sum, int(facts.pop("count")), {name: value.detach() for name, value in facts.items()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the sums of held-out texts."""
        return self.sums(model, batch, scored=True)

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return the metrics of `train_metrics`, and top5_acc of the tokens."""
        sums = {name: float(value) for name, value in gathered.items() if np.ndim(value) == 0}
        found = self.train_metrics(sums)
        found["top5_acc"] = metrics.ratio(sums["top5_correct"], sums["lm_count"], empty=float("nan"))
        return found


def masked_tokens(logits_MV: Tensor, batch: Batch, *, scored: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and the accuracy counts of the predictions for masked tokens.

    Args:
        logits_MV: a row for each masked token.
        batch: holds the right tokens and their positions.
        scored: whether to count the right tokens among the five likeliest, too.

    Returns:
        (the sum over texts of the mean loss of their masked tokens, in nats; lm_loss_sum, lm_count, correct and,
        where `scored`, top5_correct of the tokens). A text without masks adds nothing.
    """
    target = batch["target"]
    losses = functional.cross_entropy(logits_MV, target, reduction="none")
    sums = {"lm_loss_sum": losses.detach().sum(), "lm_count": torch.tensor(len(target))}
    _, how_many = texts_of_tokens(batch["net_input"])
    return (losses / how_many).sum(), sums | right_tokens(logits_MV.detach(), target, scored=scored)


def right_tokens(logits_MV: Tensor, target_M: Tensor, *, scored: bool) -> dict[str, Tensor]:
    """Count the tokens that are the likeliest (`correct`) and, if `scored`, in the top five (`top5_correct`)."""
    if not scored:
        return {"correct": (logits_MV.argmax(dim=-1) == target_M).sum()}
    best = logits_MV.topk(min(5, logits_MV.shape[-1]), dim=-1).indices == target_M[:, None]
    return {"correct": best[:, 0].sum(), "top5_correct": best.sum()}


def token_metrics(sums: Mapping[str, float], in_unit: InUnit) -> dict[str, float]:
    """Return lm_loss (per token) and acc from the sums of `masked_tokens`; `in_unit` is the method of the loss."""
    count = sums["lm_count"]
    return {
        "lm_loss": in_unit(sums["lm_loss_sum"], count),
        "acc": metrics.ratio(sums["correct"], count, empty=float("nan")),
    }


def detection_sums(told: Tensor, replaced: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Return the sums for `detection_metrics`, and `mean_sum`: the sum over rows of their mean loss.

    Args:
        told: logits (B, K) for each part being replaced.
        replaced: parts that are replaced, bool (B, K).
        real: parts that are not padding, bool (B, K).
    """
    losses = functional.binary_cross_entropy_with_logits(told, replaced.to(told.dtype), reduction="none") * real
    found = (told.detach() > 0) & real
    return {
        "mean_sum": (losses.sum(dim=1) / real.sum(dim=1)).sum(),
        "loss_sum": losses.sum(),
        "count": real.sum(),
        "right": ((found == replaced) & real).sum(),
        "hits": (found & replaced).sum(),
        "found": found.sum(),
        "replaced": replaced.sum(),
    }


def detection_metrics(sums: Mapping[str, float], prefix: str, in_unit: InUnit) -> dict[str, float]:
    """Return loss (per part), acc, precision, recall and f1 of detecting replaced parts, names with `prefix`."""
    count, hits, found, replaced = (sums[f"{prefix}{name}"] for name in ("count", "hits", "found", "replaced"))
    return {
        f"{prefix}loss": in_unit(sums[f"{prefix}loss_sum"], count),
        f"{prefix}acc": metrics.ratio(sums[f"{prefix}right"], count, empty=float("nan")),
        f"{prefix}precision": metrics.ratio(hits, found, empty=0.0),
        f"{prefix}recall": metrics.ratio(hits, replaced, empty=0.0),
        f"{prefix}f1": metrics.ratio(2 * hits, found + replaced, empty=0.0),
    }


def masks_of(net_input: Mapping[str, Tensor], *, key: str = "loss") -> Tensor:
    """Return the positions of masked tokens in a batch, (M,).

    Raises:
        ConfigError: the texts have none; `key` names what needs them.
    """
    if "masked_positions" not in net_input:
        remedy = "Preprocess with a processor that masks tokens, such as bert_lm; for the class of a text, use"
        other = "loss: cross_entropy" if key == "loss" else f"another {key}"
        fault = Fault(key, "reads masked tokens, but no tokens are masked.", f"{remedy} {other}.")
        raise ConfigError(THIS_RUN, [fault])
    return net_input["masked_positions"]


def texts_of_tokens(net_input: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return for each masked token the index of its text, (M,), and the number of masked tokens in that text, (M,)."""
    ids = net_input["input_ids"]
    text = masks_of(net_input) // ids[0].numel()
    return text, tally(text, len(ids))[text]


OF_REPLACED = ("rtd_loss", "rtd_acc", "rtd_precision", "rtd_recall", "rtd_f1")


class ElectraLoss(BesideTokens):
    """The generator predicts masked tokens; the discriminator detects the tokens that the generator got wrong.

    Each text has equal weight: the mean over its masked tokens, plus `rtd_weight` times the mean over all its tokens.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(LossParameters):
        """Keys of `electra`."""

        lm_weight: float = declare.param(
            1.0, ge=0, doc="Weight of the masked tokens, which train the generator.", alters="loss"
        )
        rtd_weight: float = declare.param(50.0, ge=0, doc="Weight of the detection of replaced tokens.", alters="loss")

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_REPLACED))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Return the sums of both tasks."""
        names = "logits of masked tokens", "tokens drawn in their place", "logits of replaced ones"
        guesses, drawn, told = outputs_of(model, batch, *names)
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
        """Return loss (nats per text), lm_loss and acc of the generator, and the detection metrics (rtd_*)."""
        return (
            super().train_metrics(facts)
            | token_metrics(facts, self.in_unit)
            | detection_metrics(facts, "rtd_", self.in_unit)
        )


OF_MESSAGES = ("cls_loss", "cls_acc", "cls_precision", "cls_recall", "cls_f1")


class RMRLoss(BesideTokens):
    """Detects messages replaced from other sessions, plus `lm_weight` times the mean over the session's masked tokens.

    Each session has the same weight: the mean over its messages.
    """

    class Parameters(BertLoss.Parameters):
        """Keys of `rmr`."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "lm_loss", "acc", "top5_acc", *OF_MESSAGES))

    def sums(self, model: nn.Module, batch: Batch, *, scored: bool) -> dict[str, Tensor]:
        """Return the sums of both tasks."""
        tokens, told = tensors_of(model, batch, "logits of masked tokens", "logits of messages")
        real = batch["net_input"]["attention_mask"].bool().any(dim=-1)
        detected = detection_sums(told, batch["cls_target"].bool() & real, real)
        guessed, counted = masked_tokens(tokens, batch, scored=scored)
        return {
            **counted,
            "loss_sum": detected.pop("mean_sum") + self.parameters.lm_weight * guessed,
            "count": torch.tensor(len(real)),
            **{f"cls_{name}": value for name, value in detected.items()},
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per session), lm_loss and acc of tokens, and the detection metrics of messages (cls_*)."""
        return (
            super().train_metrics(facts)
            | token_metrics(facts, self.in_unit)
            | detection_metrics(facts, "cls_", self.in_unit)
        )
