"""Processors of samples with the logits of a teacher, for losses of static distillation. B rows, C classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.processors.base import Batch, ColumnProcessor
from xdpx.processors.bert import BertPairProcessor, BertSingleProcessor
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.processors.texts import PairProcessor, SingleProcessor

Made = tuple[dict[str, Column], NDArray[np.int64]]


class WithLogits(ColumnProcessor):
    """Mixin that adds the logits of each record to its sample, if there are any."""

    learns_labels: ClassVar[bool] = False

    def numerize_many(self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None) -> Made:
        """Return samples with the logits of their records, empty if there are none."""
        columns, kept = super().numerize_many(fields, targets)  # type: ignore[safe-super]
        nothing = Ragged(np.zeros(0, np.float32), np.zeros(int(kept.max(initial=0)) + 2, np.int64))
        return {**columns, "logits": fields.get("logits", nothing).take(kept)}, kept

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        batch, logits = super()._batch(samples, net_input, ntokens), samples.ragged("logits")
        if not len(logits) or not logits.lengths.all():  # a sample has none
            return batch
        counts = np.unique(logits.lengths).tolist()
        if len(counts) > 1:  # reshaped, the numbers of one row would be taken for those of another
            problem = f"has teacher logits: {counts[0]} numbers for one row, and {counts[-1]} for another."
            remedy = "Write the data again with x-pred and distill: true, from one teacher."
            raise refusal("data_dir", problem, remedy)
        return {**batch, "teacher_logits": logits.values.reshape(len(logits), -1)}  # (B, C)


class SingleWithLogitsProcessor(WithLogits, SingleProcessor):
    """Samples {tokens, logits, target}; batches of `single`, with `teacher_logits` if every sample has logits."""

    schema: ClassVar[dict[str, str]] = {**SingleProcessor.schema, "logits": "ragged float32"}


class PairWithLogitsProcessor(WithLogits, PairProcessor):
    """Samples {tokens1, tokens2, logits, target}; batches of `pair`, and optionally `teacher_logits`."""

    schema: ClassVar[dict[str, str]] = {**PairProcessor.schema, "logits": "ragged float32"}


class BertSingleWithLogitsProcessor(WithLogits, BertSingleProcessor):
    """Samples {input_ids, logits, target}; batches of `bert_single`, and optionally `teacher_logits`."""

    schema: ClassVar[dict[str, str]] = {**BertSingleProcessor.schema, "logits": "ragged float32"}


class BertPairWithLogitsProcessor(WithLogits, BertPairProcessor):
    """Samples {input_ids, second_start, logits, target}; batches of `bert_pair`, and optionally `teacher_logits`."""

    schema: ClassVar[dict[str, str]] = {**BertPairProcessor.schema, "logits": "ragged float32"}
