"""The first and the last token of an answer. B rows, T positions, L the longest text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.losses.base import Batch, Gathered, Loss, loss_in_bits
from xdpx.losses.metrics import answer_f1, exact_match, ratio
from xdpx.losses.parameters import QAParameters
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

NOTHING = -1


class BertQALoss(Loss):
    """Negative log likelihood of the right beginning and of the right end, averaged over both: half of the paper's sum.

    That is -(log p_begin + log p_end) / 2, each a softmax over all positions. The answer is the span with the largest
    sum of its two logits, of `max_answer_length` tokens at most; no answer is the first position twice, without a
    threshold.

    Source: Devlin et al., "BERT", NAACL 2019, sections 4.2 and 4.3; scores: Rajpurkar et al., EMNLP 2016, section 6.1.
    """

    class Parameters(QAParameters):
        """How long answers may be."""

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "em", "f1"))
    header: ClassVar[tuple[str, ...]] = ("answer",)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Give the sum over questions, their number, and for how many both ends are right."""
        logits = model(**batch["net_input"])
        right = (best_span(logits.detach(), self.parameters.max_answer_length) == batch["target"]).all(dim=1)
        return _surprise(logits, batch["target"]), len(logits), {"correct": right.sum()}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Give the tokens that are found and those of the answer, (B, L), -1 behind them; and sums."""
        logits = model(**batch["net_input"])
        span = best_span(logits, self.parameters.max_answer_length)
        place = torch.arange(self.parameters.max_len, device=span.device)
        inside = (place <= (span[:, 1:] - span[:, :1])) & (span[:, :1] > 0)
        ids = batch["net_input"]["input_ids"]
        found = ids.gather(1, (span[:, :1] + place).clamp_max(ids.shape[1] - 1)).masked_fill(~inside, NOTHING)
        answer = batch["answer"]
        return {
            "pred": found,
            "target": functional.pad(answer, (0, self.parameters.max_len - answer.shape[1]), value=NOTHING),
            "loss_sum": _surprise(logits, batch["target"]),
            "count": torch.tensor(len(logits)),
            "correct": (span == batch["target"]).all(dim=1).sum(),
        }

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per question and end), acc (both ends right), and em and f1 of the answers as text."""
        found, wanted = (self._texts(np.asarray(gathered[name])) for name in ("pred", "target"))
        pairs = [(text, [answer] if answer else []) for text, answer in zip(found, wanted, strict=True)]
        return {
            "loss": loss_in_bits(gathered),
            "acc": ratio(float(gathered["correct"]), float(gathered["count"]), empty=float("nan")),
            "em": float(np.mean([exact_match(*pair) for pair in pairs])),
            "f1": float(np.mean([answer_f1(*pair) for pair in pairs])),
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Give loss (bits per question and end) and acc of the training batches."""
        found = super().train_metrics(facts)
        return found | {"acc": ratio(facts["correct"], facts["count"], empty=float("nan"))}

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Give the answer to each question, '' for none."""
        del labels
        return ([text] for text in self._texts(np.asarray(predictions["pred"])))

    @cached_property
    def _tokens(self) -> Sequence[str] | None:
        """The vocabulary of the data; None when it is gone, and answers are shown as numbers of tokens."""
        path = io.join(self.parameters.data_dir or "", "vocab.txt")
        return Vocabulary.read(path).tokens if io.isfile(path) else None

    def _texts(self, rows: Any) -> list[str]:
        return [text_of(row[row != NOTHING].tolist(), self._tokens) for row in rows]


def text_of(ids: Sequence[int], tokens: Sequence[str] | None) -> str:
    """Write tokens as text; pieces of words (##, or words that begin with a mark) are joined."""
    if tokens is None:
        return " ".join(map(str, ids))
    pieces = [tokens[index] for index in ids]
    if any(piece[:1] in {"\u0120", "\u2581"} for piece in pieces):
        return "".join(pieces).replace("\u0120", " ").replace("\u2581", " ").strip()
    return " ".join(pieces).replace(" ##", "")


def best_span(logits_BT2: Tensor, longest: int) -> Tensor:
    """Give the likeliest (first, last) position of each row, (B, 2): at most `longest` tokens, or (0, 0) for none."""
    begin, end = logits_BT2.unbind(dim=-1)
    width = begin.shape[1]
    allowed = torch.ones(width, width, dtype=torch.bool, device=begin.device).triu().tril(longest - 1)
    allowed[0, 1:] = False
    scores = (begin.unsqueeze(2) + end.unsqueeze(1)).masked_fill(~allowed, -torch.inf)
    best = scores.flatten(1).argmax(dim=1)
    return torch.stack([best // width, best % width], dim=1)


def _surprise(logits_BT2: Tensor, target_B2: Tensor) -> Tensor:
    """Give the negative log likelihood of both ends, averaged over them, summed over rows, in nats."""
    begin, end = logits_BT2.unbind(dim=-1)
    first = functional.cross_entropy(begin, target_B2[:, 0], reduction="sum")
    return (first + functional.cross_entropy(end, target_B2[:, 1], reduction="sum")) / 2.0
