"""Pairs of texts with a weak label (clicks, replies): what is masked must be guessed, and the label told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch, Processor, with_targets
from xdpx.processors.bert import balanced_cut
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.samples import Column, Ragged, Samples, joined


class BertSupervisedProcessor(BertLMProcessor):
    """[CLS] first [SEP] second [SEP], masked as by `bert_lm`; `cls_target` (B,) is the label that the data give."""

    class Parameters(BertLMProcessor.Parameters):
        """How much is masked, and how."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "first_length": "int32"}
    num_special: ClassVar[int] = 3

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut the longer text first, until both fit into `max_len` with their three special tokens."""
        first, second = fields["tokens1"], fields["tokens2"]
        room = self.parameters.max_len - self.num_special
        kept_first, kept_second = balanced_cut(first.lengths, second.lengths, room)
        tokens = joined([first.cut(kept_first), second.cut(kept_second)])
        length = tokens.lengths + self.num_special
        return with_targets({"input_ids": tokens, "first_length": kept_first, "length": length}, targets)

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Give the schema, with the label."""
        return Processor.columns(self, labelled=labelled)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Mask and pad; what must be guessed is `target` (M,) and, of labelled data, `cls_target` (B,)."""
        batch = self._masked(
            samples.ragged("input_ids"), samples.ids, first=samples.numbers("first_length"),
            epoch=epoch, seed=seed, pad_multiple=pad_multiple,
        )  # fmt: skip
        return {**batch, "cls_target": samples.numbers("target")} if "target" in samples else batch
