"""Processors of several views per row, separate texts to be compared. B rows, K views, T, Q, P positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.processors.base import Batch, Fields, framed, with_targets
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples

COLUMNS = ("input_ids", "input_ids2", "input_ids3")


class ApartProcessor(BertProcessor):
    """Base of processors that encode texts separately: each column of `schema` is [CLS] text [SEP] of one field."""

    class Parameters(BertProcessor.Parameters):
        """Keys of all processors for BERT."""

    num_special: ClassVar[int] = 2

    @property
    def rooms(self) -> Sequence[int]:
        """Maximum number of tokens of each text, without special ones."""
        return [self._room] * len(self.text_fields)

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of texts that are cut to fit. `length` is the sum of all texts."""
        columns: dict[str, Column] = {}
        lengths = []
        for column, name, room in zip(self.schema, self.text_fields, self.rooms, strict=True):
            framed_text = framed([self.cls_index, self.sep_index], [fields[name].cut(room)], before=1)
            columns[column] = framed_text
            lengths.append(framed_text.lengths)
        return with_targets({**columns, "length": np.sum(lengths, axis=0)}, targets)

    def full_length(self, fields: Fields) -> int:
        """Return the length of the longest text, uncut, with its special tokens."""
        return max(len(fields[name]) for name in self.text_fields) + self.num_special


class SingleViewsProcessor(ApartProcessor):
    """[CLS] text [SEP], twice: dropout makes two views of it. Batches {input_ids, attention_mask} of shape (B, 2, T).

    Source: Gao et al., "SimCSE", EMNLP 2021, section 3.
    """

    class Parameters(ApartProcessor.Parameters):
        """Keys of all processors for BERT."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with all views padded to one width: `input_ids` and `attention_mask` (B, K, T)."""
        views = [samples.ragged(column) for column in self.schema]
        width = self._width(*(view.lengths for view in views), pad_multiple=pad_multiple)
        masks = np.stack([view.mask(width) for view in views], axis=1)
        input_ids = np.full(masks.shape, self.pad_index, np.int64)
        for index, view in enumerate(views):
            input_ids[:, index][masks[:, index]] = view.values
        if len(views) == 1:
            input_ids, masks = input_ids.repeat(2, axis=1), masks.repeat(2, axis=1)
        net_input: dict[str, Any] = {"input_ids": input_ids, "attention_mask": masks}
        return self._batch(samples, net_input, int(masks.sum()))


class PairViewsProcessor(SingleViewsProcessor):
    """Two texts with the same meaning, each [CLS] text [SEP]. Batches {input_ids, attention_mask} of shape (B, 2, T).

    Labels, such as degrees of similarity, are not used in training, only to evaluate held-out pairs.

    Source: Gao et al., "SimCSE", EMNLP 2021, section 4.1.
    """

    class Parameters(SingleViewsProcessor.Parameters):
        """Keys of all processors for BERT."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = dict.fromkeys(COLUMNS[:2], "ragged int32")


class TripletViewsProcessor(SingleViewsProcessor):
    """A text, one with the same meaning, and one with another. Batches {input_ids, attention_mask}: (B, 3, T).

    Source: Gao et al., "SimCSE", EMNLP 2021, section 4.2.
    """

    class Parameters(SingleViewsProcessor.Parameters):
        """Keys of all processors for BERT."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2", "tokens3")
    schema: ClassVar[dict[str, str]] = dict.fromkeys(COLUMNS, "ragged int32")


class SiamesePairProcessor(PairViewsProcessor):
    """Two texts that are encoded separately, and the class of the pair. Batches as of `bert_cl_pair`.

    Source: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, section 3.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(PairViewsProcessor.Parameters):
        """Keys of all processors for BERT."""


class BertDPRProcessor(ApartProcessor):
    """[CLS] question [SEP] and [CLS] passage [SEP], padded separately, because questions are much shorter.

    Batches {question_ids, question_mask} of shape (B, Q) and {passage_ids, passage_mask} of shape (B, P).

    Source: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020, section 3.1.
    """

    class Parameters(ApartProcessor.Parameters):
        """Maximum lengths of both."""

        max_question_length: int = param(30, gt=2, doc="Maximum length of a question in tokens, with special ones.")
        max_passage_length: int = param(300, gt=2, doc="Maximum length of a passage in tokens, with special ones.")

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"question_ids": "ragged int32", "passage_ids": "ragged int32"}

    @property
    def rooms(self) -> Sequence[int]:
        """Maximum lengths of questions and passages without special tokens; `max_len` also limits both."""
        lengths = (self.parameters.max_question_length, self.parameters.max_passage_length)
        return [min(length - self.num_special, self._room) for length in lengths]

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with questions padded to (B, Q), passages to (B, P)."""
        question_ids, question_mask = self._tokens(samples.ragged("question_ids"), pad_multiple)
        passage_ids, passage_mask = self._tokens(samples.ragged("passage_ids"), pad_multiple)
        net_input: dict[str, Any] = {
            "question_ids": question_ids, "question_mask": question_mask,
            "passage_ids": passage_ids, "passage_mask": passage_mask,
        }  # fmt: skip
        return self._batch(samples, net_input, self._num_tokens(net_input))
