"""The processor for extractive question answering. B rows, T positions, A tokens of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.processors.base import Batch, Fields, framed
from xdpx.processors.bert import BertTwoProcessor
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.processors.windows import windows_of


class BertQAProcessor(BertTwoProcessor):
    """[CLS] question [SEP] context [SEP], with first and last position of the answer, 0 (i.e. [CLS]) for none.

    Batches {input_ids, attention_mask, token_type_ids} of shape (B, T); `target` (B, 2) has the first and last position
    of the answer. With `doc_stride`, a context that is too long becomes several samples, overlapping windows; `window`
    (B,) numbers those of a question from 0, and the target is 0 in windows without the answer. Without `doc_stride`,
    the context is cut, and an answer in the rest cannot be found and counts as an error.

    For scoring and prediction, batches also have the text of the window, `text` (B, C), all right answers, one per
    line, `right` (B, A), both in bytes of UTF-8 padded by 0, and the bytes of each token in the text, `begins` and
    `ends` (B, T), 0 outside of the context.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.2, and its published code for the windows.
    """

    class Parameters(BertTwoProcessor.Parameters):
        """Maximum length of questions, and the treatment of contexts that are too long."""

        max_question_length: int = param(64, gt=0, doc="Maximum length of a question in tokens; longer ones are cut.")
        doc_stride: int | None = param(
            None, gt=0, doc="Tokens from the start of one window of a long context to the next; null: it is cut."
        )

    text_fields: ClassVar[tuple[str, ...]] = ("question", "context")
    schema: ClassVar[dict[str, str]] = {
        "input_ids": "ragged int32", "window": "int32", "second_start": "int32", "answer_start": "int32",
        "answer_end": "int32", "text": "ragged uint8", "begins": "ragged int32", "ends": "ragged int32",
        "right": "ragged uint8",
    }  # fmt: skip
    num_special: ClassVar[int] = 3
    reads_answers: ClassVar[bool] = True

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples with the question cut, and the context cut or split into windows, to fit into `max_len`."""
        del targets
        question = fields["question"].cut(min(self.parameters.max_question_length, self._room))
        context, room = fields["context"], self._room - question.lengths
        question = self._with_separators(question)
        fields = fields if "text" in fields else {**fields, **_placeless(context)}
        rows, numbers, starts, lengths = windows_of(context.lengths, room, self.parameters.doc_stride)
        parts = [question.take(rows), context.parts(rows, starts, lengths)]
        input_ids = framed([self.cls_index, self.sep_index, self.sep_index], parts, before=1)
        second_start = (question.lengths + 2)[rows]
        first, last = fields["answer"].values.reshape(-1, 2)[rows].T - starts
        there = (first >= 0) & (last < lengths)
        begins, ends = (fields[name].parts(rows, starts, lengths) for name in ("begins", "ends"))
        filled = np.flatnonzero(lengths)
        text_start, text_end = np.zeros((2, len(rows)), np.int64)
        text_start[filled] = begins.values[begins.offsets[filled]]
        text_end[filled] = ends.values[ends.offsets[filled + 1] - 1]
        columns: dict[str, Column] = {
            "input_ids": input_ids,
            "window": numbers,
            "second_start": second_start,
            "answer_start": np.where(there, second_start + first, 0),
            "answer_end": np.where(there, second_start + last, 0),
            "text": fields["text"].parts(rows, text_start, text_end - text_start),
            "begins": Ragged(begins.values - np.repeat(text_start, lengths), begins.offsets),
            "ends": Ragged(ends.values - np.repeat(text_start, lengths), ends.offsets),
            "right": fields["right"].take(rows),
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
        length = question + len(fields["context"]) + self.num_special
        return length if self.parameters.doc_stride is None else min(length, self.parameters.max_len)

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a window and its answers, for display."""
        return " | ".join([self._text(sample["input_ids"]), *bytes(sample["right"]).decode().splitlines()])

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch padded to (B, T); token types are 1 in the context and at the [SEP] after it.

        Raises:
            ConfigError: the samples were made by an older version.
        """
        if "text" not in samples:
            problem = "holds questions as an older version prepared them: tokens showed where answers are."
            raise refusal("data_dir", problem, "Run x-prepro again.")
        batch = self._pairs(samples, pad_multiple)
        spans = [samples.numbers("answer_start"), samples.numbers("answer_end")]
        batch["target"] = np.stack(spans, axis=1).astype(np.int64)
        batch["window"] = samples.numbers("window").astype(np.int64)
        if not training:
            for name in ("begins", "ends"):
                found = samples.ragged(name)
                rows = np.repeat(np.arange(len(found)), found.lengths)
                columns = found.places(samples.numbers("second_start"))
                batch[name] = np.zeros(batch["net_input"]["input_ids"].shape, np.int64)
                batch[name][rows, columns] = found.values
            batch |= {name: _padded(samples.ragged(name)) for name in ("text", "right")}
        return batch


def _placeless(context: Ragged) -> dict[str, Ragged]:
    """Return the fields of `answer_places` for token ids without a text, such as made-up ones."""
    nothing, count = Ragged(np.zeros(0, np.uint8), np.zeros(len(context) + 1, np.int64)), len(context)
    zeros = Ragged(np.zeros(len(context.values), np.int64), context.offsets)
    nowhere = Ragged(np.full(2 * count, -1), np.arange(count + 1) * 2)
    return {"begins": zeros, "ends": zeros, "text": nothing, "right": nothing, "answer": nowhere}


def _padded(rows: Ragged) -> NDArray[np.uint8]:
    """Return rows of bytes as an array, padded by 0, which no text contains."""
    there = rows.mask(int(rows.lengths.max(initial=0)))
    found = np.zeros(there.shape, np.uint8)
    found[there] = rows.values
    return found
