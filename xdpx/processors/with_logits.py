"""Samples that carry the logits of a teacher, for the losses of static distillation. B rows, C classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch
from xdpx.processors.pair import PairProcessor
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.processors.single import SingleProcessor

Made = tuple[dict[str, Column], NDArray[np.int64]]


class SingleWithLogitsProcessor(SingleProcessor):
    """Samples {tokens, logits, target}; batches of `single`, and where every sample has logits `teacher_logits`."""

    schema: ClassVar[dict[str, str]] = {**SingleProcessor.schema, "logits": "ragged float32"}

    def numerize_many(self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None) -> Made:
        """Let the logits of each record, where there are any, go with its sample."""
        return _with_logits(super().numerize_many(fields, targets), fields)

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        return {**super()._batch(samples, net_input, ntokens), **_teacher_logits(samples)}


class PairWithLogitsProcessor(PairProcessor):
    """Samples {tokens1, tokens2, logits, target}; batches of `pair`, and perhaps `teacher_logits`."""

    schema: ClassVar[dict[str, str]] = {**PairProcessor.schema, "logits": "ragged float32"}

    def numerize_many(self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None) -> Made:
        """Let the logits of each record, where there are any, go with its sample."""
        return _with_logits(super().numerize_many(fields, targets), fields)

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        return {**super()._batch(samples, net_input, ntokens), **_teacher_logits(samples)}


def _with_logits(made: Made, fields: Mapping[str, Ragged]) -> Made:
    """Add the column of logits; its rows are empty where the records have none."""
    columns, kept = made
    nothing = Ragged(np.zeros(0, np.float32), np.zeros(int(kept.max(initial=0)) + 2, np.int64))
    return {**columns, "logits": fields.get("logits", nothing).take(kept)}, kept


def _teacher_logits(samples: Samples) -> dict[str, NDArray[Any]]:
    """Give {teacher_logits: (B, C)}; nothing where a sample has none."""
    logits = samples.ragged("logits")
    whole = len(logits) > 0 and bool(logits.lengths.all())
    return {"teacher_logits": logits.values.reshape(len(logits), -1)} if whole else {}
