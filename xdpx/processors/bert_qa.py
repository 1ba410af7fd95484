"""Samples for questions about a text: where the answer begins and ends. B rows, T positions, A tokens of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.processors.base import Batch, Fields, framed
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples, joined


class BertQAProcessor(BertProcessor):
    """[CLS] question [SEP] context [SEP]; both ends of the answer as positions in it, 0 (that is [CLS]) for none.

    Batches {input_ids, attention_mask, token_type_ids} of shape (B, T); `target` (B, 2) holds first and last position
    of the answer, `answer` (B, A) its tokens, -1 behind them. What of a context `max_len` cuts off is not looked at:
    an answer there cannot be found, and counts as not found.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.2.
    """

    class Parameters(BertProcessor.Parameters):
        """How long questions may be."""

        max_question_length: int = param(64, gt=0, doc="Longest question, in tokens; what is longer is cut.")

    text_fields: ClassVar[tuple[str, ...]] = ("question", "before", "answer", "after")
    schema: ClassVar[dict[str, str]] = {
        "input_ids": "ragged int32", "answer": "ragged int32",
        "second_start": "int32", "answer_start": "int32", "answer_end": "int32",
    }  # fmt: skip
    num_special: ClassVar[int] = 3

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut the question, then the context at its end, until both fit with their special tokens."""
        del targets
        question = fields["question"].cut(min(self.parameters.max_question_length, self._room))
        before, answer, after = (fields[name] for name in self.text_fields[1:])
        context = joined([before, answer, after]).cut(self._room - question.lengths)
        input_ids = framed([self.cls_index, self.sep_index, self.sep_index], [question, context], before=1)
        second_start = question.lengths + 2
        there = (answer.lengths > 0) & (before.lengths + answer.lengths <= context.lengths)
        start = second_start + before.lengths
        columns: dict[str, Column] = {
            "input_ids": input_ids,
            "answer": answer,
            "second_start": second_start,
            "answer_start": np.where(there, start, 0),
            "answer_end": np.where(there, start + answer.lengths - 1, 0),
            "length": input_ids.lengths,
        }
        return columns, np.arange(len(input_ids))

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Give the schema; answers are no labels."""
        del labelled
        return super().columns(labelled=False)

    def full_length(self, fields: Fields) -> int:
        """Length before the context is cut, with special tokens."""
        question: int = min(len(fields["question"]), self.parameters.max_question_length)
        return question + sum(len(fields[name]) for name in self.text_fields[1:]) + self.num_special

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad to (B, T); token types are 1 in the context and at the [SEP] behind it."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        second = (np.arange(mask.shape[1]) >= samples.numbers("second_start")[:, None]) & mask
        net_input = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": second.astype(np.int64)}
        batch = self._batch(samples, net_input, int(mask.sum()))
        ends = [samples.numbers("answer_start"), samples.numbers("answer_end")]
        batch["target"] = np.stack(ends, axis=1).astype(np.int64)
        answer = samples.ragged("answer").cut(self.parameters.max_len)
        there = answer.mask(max(int(answer.lengths.max(initial=0)), 1))
        batch["answer"] = np.full(there.shape, -1, np.int64)
        batch["answer"][there] = answer.values
        return batch
