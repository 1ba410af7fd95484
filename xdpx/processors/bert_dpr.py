"""Questions and passages, each read without the other. B rows, Q and P positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdpx.config.parameters import param
from xdpx.processors.base import Batch
from xdpx.processors.samples import Samples
from xdpx.processors.views import ApartProcessor


class BertDPRProcessor(ApartProcessor):
    """[CLS] question [SEP] and [CLS] passage [SEP], padded apart, as questions are much shorter.

    Batches {question_ids, question_mask} of shape (B, Q) and {passage_ids, passage_mask} of shape (B, P).

    Source: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020, section 3.1.
    """

    class Parameters(ApartProcessor.Parameters):
        """How long both may be."""

        max_question_length: int = param(30, gt=2, doc="Longest question, in tokens with special ones.")
        max_passage_length: int = param(300, gt=2, doc="Longest passage, in tokens with special ones.")

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"question_ids": "ragged int32", "passage_ids": "ragged int32"}

    @property
    def rooms(self) -> Sequence[int]:
        """Questions and passages have greatest lengths of their own, neither of which is above `max_len`."""
        lengths = (self.parameters.max_question_length, self.parameters.max_passage_length)
        return [min(length - self.num_special, self._room) for length in lengths]

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
