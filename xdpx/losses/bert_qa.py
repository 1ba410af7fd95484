"""Extractive question answering: first and last token of an answer. B rows, T positions, L the longest text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.logger import log
from xdpx.losses.answers import QuestionAnswers, best_threshold, by_text, merged
from xdpx.losses.base import Batch, Gathered, Loss, output_with_axes
from xdpx.losses.parameters import LossParameters
from xdpx.metrics import answer_f1, exact_match, ratio

ENDS = ("texts", "tokens", "2")
"""Of what a model gives: a logit of each token as the first of the answer, and as the last."""

PADDING = b"\0"
"""Fills up texts in bytes."""
IMPOSSIBLE = -1e30
"""Positions with logits below this cannot be part of an answer."""


class BertQALoss(Loss):
    """Negative log likelihood of the right start and the right end, averaged over both: half of the paper's sum.

    That is -(log p_begin + log p_end) / 2, each a softmax over all positions. The answer is the span with the largest
    sum of its two logits, of `max_answer_length` tokens at most, in all windows of the question; "no answer" has the
    first position as both ends, and must score higher by `null_threshold`. Of several right answers the best counts.

    Source: Devlin et al., "BERT", NAACL 2019, sections 4.2 and 4.3; scores: Rajpurkar et al., EMNLP 2016, section 6.1.
    """

    class Parameters(LossParameters):
        """Keys of `bert_qa`."""

        max_answer_length: int = declare.param(30, gt=0, doc="Maximum length of a predicted answer, in tokens.")
        n_best: int = declare.param(1, gt=0, doc="Answers that x-pred writes for a question, with their probabilities.")
        null_threshold: float | None = declare.param(
            0.0, doc="Predict no answer if it scores so much higher than the best answer; null: always predict one."
        )

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "em", "f1", "best_f1", "best_null_threshold"))
    header: ClassVar[tuple[str, ...]] = ("answer",)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over windows, their number, and the number with both ends right."""
        logits = output_with_axes(model, batch, *ENDS)
        right = (best_span(logits.detach(), self.parameters.max_answer_length) == batch["target"]).all(dim=1)
        return _surprise(logits, batch["target"]), len(logits), {"correct": right.sum()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Any]:
        """Return the best answers of each window, `pred` (B, N) with `score` (B, N), and `nothing` (B,); and sums.

        `span` (B, N, 2) has the first and last position of each; `right` (B,) the right answers, one per line. These
        and `pred` are texts as they stand in the context, in arrays of objects. `sample` (B,) is the position in the
        data, `window` (B,) the index of the window within its question.
        """
        logits, known = output_with_axes(model, batch, *ENDS), self.parameters
        spans, scores = best_spans(logits, known.max_answer_length, number=known.n_best)
        ends = best_span(logits, known.max_answer_length)
        begins_BN, ends_BN = batch["begins"].gather(1, spans[..., 0]), batch["ends"].gather(1, spans[..., 1])
        return {
            "pred": _texts(batch["text"], begins_BN, ends_BN),
            "span": spans,
            "score": scores,
            "nothing": logits[:, 0].sum(dim=-1),
            "sample": batch["id"],
            "window": batch["window"],
            "right": np.array([bytes(row).rstrip(PADDING).decode() for row in batch["right"].cpu().numpy()], object),
            "loss_sum": _surprise(logits, batch["target"]),
            "count": torch.tensor(len(logits)),
            "correct": (ends == batch["target"]).all(dim=1).sum(),
            "too_long": (batch["target"].diff(dim=1) >= known.max_answer_length).sum(),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per window and end), acc (windows with both ends right), em and f1 of the answers as text.

        If some questions have no answer, also best_f1, the best with any null_threshold, and that threshold.
        """
        self._tell_of_long_answers(gathered)
        rows = by_text(np.asarray(gathered["sample"]), np.asarray(gathered["window"]))
        asked = [self._found(gathered, each) for each in rows]
        wanted = [right.splitlines() for right in np.asarray(gathered["right"])[[each[0] for each in rows]]]
        texts = [found.text(self.parameters.null_threshold) for found in asked]
        scores = {
            "loss": self.mean_loss(gathered),
            "acc": ratio(float(gathered["correct"]), float(gathered["count"]), empty=float("nan")),
            "em": float(np.mean([exact_match(*pair) for pair in zip(texts, wanted, strict=True)])),
            "f1": float(np.mean([answer_f1(*pair) for pair in zip(texts, wanted, strict=True)])),
        }
        if all(wanted):
            return scores
        spoken = [answer_f1(found.text(None), each) for found, each in zip(asked, wanted, strict=True)]
        best, threshold = best_threshold([found.doubt for found in asked], spoken, [float(not each) for each in wanted])
        return scores | {"best_f1": best, "best_null_threshold": threshold}

    def _tell_of_long_answers(self, gathered: Gathered) -> None:
        """Warn of right answers that are too long to be predicted, common in Chinese, whose tokens are characters."""
        if gathered["too_long"]:  # not how many: the trial before training sees one batch, and would say it twice
            longest = self.parameters.max_answer_length
            problem = f"some right answers have more than {longest} tokens, and cannot be predicted"
            log.warning(f"max_answer_length: {problem}. Raise it.", once=True)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per window and end) and acc of the training batches."""
        found = super().train_metrics(facts)
        return found | {"acc": ratio(facts["correct"], facts["count"], empty=float("nan"))}

    def columns(self) -> tuple[str, ...]:
        """Return "answer", and if several answers are wanted, also the column that lists them."""
        return (*self.header, "n_best") if self.parameters.n_best > 1 else self.header

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Return the answer for each window, '' for none; with n_best also a JSON list with probabilities."""
        del labels
        threshold = self.parameters.null_threshold
        cells: dict[int, list[str]] = {}
        for rows in by_text(np.asarray(predictions["sample"]), np.asarray(predictions["window"])):
            found = self._found(predictions, rows)
            listed = json.dumps(found.shares(threshold), ensure_ascii=False)
            cells |= dict.fromkeys(rows.tolist(), [found.text(threshold), listed][: len(self.columns())])
        return (cells[row] for row in range(len(cells)))

    def _found(self, predictions: Mapping[str, Any], rows: NDArray[np.int64]) -> QuestionAnswers:
        pred, score, nothing = (np.asarray(predictions[name])[rows] for name in ("pred", "score", "nothing"))
        return merged(pred, score, nothing)


def _texts(text_BC: Tensor, begins_BN: Tensor, ends_BN: Tensor) -> NDArray[Any]:
    """Return the texts between bytes of each row, (B, N), without white space around them."""
    texts, begins, ends = (each.cpu().numpy() for each in (text_BC, begins_BN, ends_BN))
    found = np.empty(begins.shape, object)
    for row, (text, *spans) in enumerate(zip(map(bytes, texts), begins.tolist(), ends.tolist(), strict=True)):
        found[row] = [text[begin:end].decode().strip() for begin, end in zip(*spans, strict=True)]
    return found


def best_span(logits_BT2: Tensor, longest: int) -> Tensor:
    """Return the likeliest (first, last) position of each row, (B, 2): at most `longest` tokens, or (0, 0)."""
    spans, scores = best_spans(logits_BT2, longest, number=1)
    nothing = logits_BT2[:, 0].sum(dim=-1) >= scores[:, 0]
    return spans[:, 0].masked_fill(nothing.unsqueeze(-1), 0)


def best_spans(logits_BT2: Tensor, longest: int, *, number: int) -> tuple[Tensor, Tensor]:
    """Return the likeliest spans of each row, of at most `longest` tokens, excluding the first position.

    Returns:
        (first and last position (B, number, 2), their scores (B, number), -inf if there are fewer spans).
    """
    begin, end = logits_BT2.unbind(dim=-1)
    width = begin.shape[1]
    allowed = torch.ones(width, width, dtype=torch.bool, device=begin.device).triu().tril(longest - 1)
    allowed[0] = False
    possible = (begin > IMPOSSIBLE).unsqueeze(2) & (end > IMPOSSIBLE).unsqueeze(1) & allowed
    scores = (begin.unsqueeze(2) + end.unsqueeze(1)).masked_fill(~possible, -torch.inf).flatten(1)
    best, places = functional.pad(scores, (0, max(number - scores.shape[1], 0)), value=-torch.inf).topk(number)
    places = places.clamp_max(width * width - 1)
    return torch.stack([places // width, places % width], dim=-1), best


def _surprise(logits_BT2: Tensor, target_B2: Tensor) -> Tensor:
    """Return the negative log likelihood of both ends, averaged over them, summed over rows, in nats."""
    begin, end = logits_BT2.unbind(dim=-1)
    first = functional.cross_entropy(begin, target_B2[:, 0], reduction="sum")
    return (first + functional.cross_entropy(end, target_B2[:, 1], reduction="sum")) / 2.0
