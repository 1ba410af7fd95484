"""Processors for BERT: one text or a pair of texts, with [CLS] and [SEP]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.processors.base import Batch, ColumnProcessor, framed, with_targets
from xdpx.processors.samples import Column, Integers, Ragged, Samples, joined
from xdpx.tokenizers.vocabulary import Vocabulary


class BertProcessor(ColumnProcessor):
    """Base of processors for BERT, with the ids of [CLS] and [SEP]."""

    class Parameters(ColumnProcessor.Parameters):
        """Ids of special tokens; null: from the vocabulary."""

        cls_index: int | None = param(None, doc="Id of [CLS]; from the vocabulary.", ge=0)
        sep_index: int | None = param(None, doc="Id of [SEP]; from the vocabulary.", ge=0)

    special_words: ClassVar[tuple[str, ...]] = ("[CLS]", "[SEP]")

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self.cls_index = self._token_index("cls_index", parameters.cls_index, "[CLS]")
        self.sep_index = self._token_index("sep_index", parameters.sep_index, "[SEP]")
        self._room = parameters.max_len - self.num_special

    def meta(self) -> dict[str, Any]:
        """Return what training inherits, including the ids of the special tokens."""
        return {**super().meta(), "cls_index": self.cls_index, "sep_index": self.sep_index}

    def _pairs(self, samples: Samples, pad_multiple: int) -> Batch:
        """Return the batch of samples of two texts; token types are 1 from `second_start` on."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        second = (np.arange(mask.shape[1]) >= samples.numbers("second_start")[:, None]) & mask
        net_input = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": second.astype(np.int64)}
        return self._batch(samples, net_input, int(mask.sum()))


class BertSingleProcessor(BertProcessor):
    """[CLS] text [SEP]. Samples {input_ids, target}; batches {input_ids, attention_mask}."""

    learns_labels: ClassVar[bool] = True
    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}
    num_special: ClassVar[int] = 2

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of texts that are cut to fit into `max_len` with two special tokens."""
        input_ids = framed([self.cls_index, self.sep_index], [fields["tokens"].cut(self._room)], before=1)
        return with_targets({"input_ids": input_ids, "length": input_ids.lengths}, targets)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `input_ids` and `attention_mask`, both of shape (B, T)."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        return self._batch(samples, {"input_ids": input_ids, "attention_mask": mask}, int(mask.sum()))


class BertTwoProcessor(BertProcessor):
    """Base of processors that put two texts into one row, with one or two [SEP] between them."""

    class Parameters(BertProcessor.Parameters):
        """How the two texts are separated."""

        separators: int = param(
            1, ge=1, le=2, doc="Number of [SEP] between two texts; RoBERTa and its relatives were pre-trained with 2."
        )

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        self.num_special = type(self).num_special + parameters.separators - 1  # type: ignore[misc]
        super().__init__(parameters, vocabulary=vocabulary)

    def meta(self) -> dict[str, Any]:
        """Return what training inherits; not the number of separators if it is 1, as in older data."""
        return {key: value for key, value in super().meta().items() if (key, value) != ("separators", 1)}

    def _with_separators(self, first: Ragged) -> Ragged:
        """Return first texts, each followed by the separators that stand before the last one."""
        more = self.parameters.separators - 1
        if not more:
            return first
        offsets = np.arange(len(first) + 1) * more
        return joined([first, Ragged(np.full(offsets[-1], self.sep_index, first.values.dtype), offsets)])


class BertPairProcessor(BertTwoProcessor):
    """[CLS] first [SEP] second [SEP]. Batches {input_ids, attention_mask, token_type_ids}.

    Samples store the position where the second text begins, `second_start`, from which token types are derived.
    """

    class Parameters(BertTwoProcessor.Parameters):
        """Keys of pairs."""

    learns_labels: ClassVar[bool] = True
    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "second_start": "int32"}
    num_special: ClassVar[int] = 3

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of pairs, cut (the longer text first) to fit into `max_len` with three special tokens."""
        first, second = fields["tokens1"], fields["tokens2"]
        kept_first, kept_second = balanced_cut(first.lengths, second.lengths, self._room)
        first, second = self._with_separators(first.cut(kept_first)), second.cut(kept_second)
        input_ids = framed([self.cls_index, self.sep_index, self.sep_index], [first, second], before=1)
        columns: dict[str, Column] = {
            "input_ids": input_ids,
            "second_start": first.lengths + 2,
            "length": input_ids.lengths,
        }
        return with_targets(columns, targets)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `input_ids`, `attention_mask`, `token_type_ids` (1 in the second text), all (B, T)."""
        return self._pairs(samples, pad_multiple)


def balanced_cut(first: Integers, second: Integers, room: int) -> tuple[Integers, Integers]:
    """Return how many tokens of two texts to keep, if the longer one is shortened token by token until both fit.

    Of two equally long texts, the second is shortened.

    Args:
        first: lengths of the first texts, shape (N,).
        second: lengths of the second texts, shape (N,).
        room: maximum number of tokens of both together.

    Returns:
        (kept of first, kept of second).
    """
    kept_first = np.minimum(first, np.maximum(room - second, (room + 1) // 2))
    return kept_first, np.minimum(second, room - kept_first)
