"""The processor for extractive question answering. B rows, T positions, A tokens of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.processors.base import Batch, Fields, framed
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples, joined
from xdpx.processors.windows import windows_of

BETWEEN = -1
"""Separates the answers of a question, and pads them."""


class BertQAProcessor(BertProcessor):
    """[CLS] question [SEP] context [SEP], with first and last position of the answer, 0 (i.e. [CLS]) for none.

    Batches {input_ids, attention_mask, token_type_ids} of shape (B, T); `target` (B, 2) has the first and last position
    of the answer, `answer` (B, A) the tokens of all correct answers, cut to `max_len`, separated and padded by -1. With
    `doc_stride`, a context that is too long becomes several samples, overlapping windows; `window` (B,) numbers those
    of a question from 0, and the target is 0 in windows without the answer. Without `doc_stride`, the context is cut,
    and an answer in the rest cannot be found and counts as an error.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.2, and its published code for the windows.
    """

    class Parameters(BertProcessor.Parameters):
        """Maximum length of questions, and the treatment of contexts that are too long."""

        max_question_length: int = param(64, gt=0, doc="Maximum length of a question in tokens; longer ones are cut.")
        doc_stride: int | None = param(
            None, gt=0, doc="Tokens from the start of one window of a long context to the next; null: it is cut."
        )

    text_fields: ClassVar[tuple[str, ...]] = ("question", "before", "answer", "after", "others")
    schema: ClassVar[dict[str, str]] = {
        "input_ids": "ragged int32", "answer": "ragged int32", "window": "int32",
        "second_start": "int32", "answer_start": "int32", "answer_end": "int32",
    }  # fmt: skip
    num_special: ClassVar[int] = 3
    reads_marks: ClassVar[int] = marks.WORD_START

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples with the question cut, and the context cut or split into windows, to fit into `max_len`."""
        del targets
        question = fields["question"].cut(min(self.parameters.max_question_length, self._room))
        before, answer, after, others = (fields[name] for name in self.text_fields[1:])
        context, room = joined([before, answer, after]), self._room - question.lengths
        rows, numbers, starts, lengths = windows_of(context.lengths, room, self.parameters.doc_stride)
        parts = [question.take(rows), context.parts(rows, starts, lengths)]
        input_ids = framed([self.cls_index, self.sep_index, self.sep_index], parts, before=1)
        second_start = (question.lengths + 2)[rows]
        begin, size = before.lengths[rows] - starts, answer.lengths[rows]
        there = (size > 0) & (begin >= 0) & (begin + size <= lengths)
        columns: dict[str, Column] = {
            "input_ids": input_ids,
            "answer": joined([answer, _apart(others)]).take(rows),
            "window": numbers,
            "second_start": second_start,
            "answer_start": np.where(there, second_start + begin, 0),
            "answer_end": np.where(there, second_start + begin + size - 1, 0),
            "length": input_ids.lengths,
        }
        return columns, rows

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema without labels; answers are not labels."""
        del labelled
        return super().columns(labelled=False)

    def full_length(self, fields: Fields) -> int:
        """Return the length with the context uncut; at most `max_len` with `doc_stride`, since windows cut nothing."""
        question: int = min(len(fields["question"]), self.parameters.max_question_length)
        length = question + sum(len(fields[name]) for name in self.text_fields[1:4]) + self.num_special
        return length if self.parameters.doc_stride is None else min(length, self.parameters.max_len)

    def lacks_text(self, fields: Fields) -> bool:
        """Return whether the question or the context is empty; the answer, and what stands around it, may be."""
        return not len(fields["question"]) or not any(len(fields[name]) for name in self.text_fields[1:4])

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a window and its answers, for display."""
        row = np.asarray(sample["answer"])
        answers = [part[part != BETWEEN] for part in np.split(row, np.flatnonzero(row == BETWEEN))]
        return " | ".join(map(self._text, [sample["input_ids"], *(each.tolist() for each in answers)]))

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch padded to (B, T); token types are 1 in the context and at the [SEP] after it."""
        batch = self._pairs(samples, pad_multiple)
        ends = [samples.numbers("answer_start"), samples.numbers("answer_end")]
        batch["target"] = np.stack(ends, axis=1).astype(np.int64)
        batch["window"] = samples.numbers("window").astype(np.int64)
        answer = samples.ragged("answer").cut(self.parameters.max_len)
        there = answer.mask(max(int(answer.lengths.max(initial=0)), 1))
        batch["answer"] = np.full(there.shape, BETWEEN, np.int64)
        batch["answer"][there] = answer.values
        return batch


def _apart(rows: Ragged) -> Ragged:
    """Return rows with BETWEEN in front of every marked token, and without marks."""
    places = np.flatnonzero(marks.has(marks.WORD_START, rows.values))
    offsets = rows.offsets + np.searchsorted(places, rows.offsets)
    return Ragged(np.insert(marks.plain(rows.values), places, BETWEEN), offsets)
