"""Questions and passages, each read without the other. B rows, Q and P positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.processors.base import Batch, Fields, framed, with_targets
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples


class BertDPRProcessor(BertProcessor):
    """[CLS] question [SEP] and [CLS] passage [SEP], padded apart, as questions are much shorter.

    Batches {question_ids, question_mask} of shape (B, Q) and {passage_ids, passage_mask} of shape (B, P).

    Source: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020, section 3.1.
    """

    class Parameters(BertProcessor.Parameters):
        """How long both may be."""

        max_question_length: int = param(30, gt=2, doc="Longest question, in tokens with special ones.")
        max_passage_length: int = param(300, gt=2, doc="Longest passage, in tokens with special ones.")

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"question_ids": "ragged int32", "passage_ids": "ragged int32"}
    num_special: ClassVar[int] = 2

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut questions and passages to their greatest lengths, neither of which is above `max_len`."""
        known, frame = self.parameters, [self.cls_index, self.sep_index]
        columns: dict[str, Column] = {}
        lengths = []
        rooms = (known.max_question_length, known.max_passage_length)
        for column, name, room in zip(self.schema, self.text_fields, rooms, strict=True):
            framed_text = framed(frame, [fields[name].cut(min(room - self.num_special, self._room))], before=1)
            columns[column] = framed_text
            lengths.append(framed_text.lengths)
        return with_targets({**columns, "length": np.sum(lengths, axis=0)}, targets)

    def full_length(self, fields: Fields) -> int:
        """Length of the longer text before it is cut, with its special tokens."""
        return max(len(fields[name]) for name in self.text_fields) + self.num_special

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad questions to (B, Q), passages to (B, P)."""
        question_ids, question_mask = self._tokens(samples.ragged("question_ids"), pad_multiple)
        passage_ids, passage_mask = self._tokens(samples.ragged("passage_ids"), pad_multiple)
        net_input: dict[str, Any] = {
            "question_ids": question_ids, "question_mask": question_mask,
            "passage_ids": passage_ids, "passage_mask": passage_mask,
        }  # fmt: skip
        return self._batch(samples, net_input, self._num_tokens(net_input))
