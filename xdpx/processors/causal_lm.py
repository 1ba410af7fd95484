"""The processor for causal language modelling: every token of a block is predicted from those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch, ColumnProcessor
from xdpx.processors.samples import Column, Ragged, Samples

NO_TARGET = -100
"""Target where nothing is to be predicted: at padding and at the last token."""
SHORTEST = 2
"""Minimum number of tokens: one to predict, and one to predict it from."""


class CausalLMProcessor(ColumnProcessor):
    """Samples {input_ids}, no special tokens; batches {input_ids, attention_mask} and target (B, T), -100 for none."""

    class Parameters(ColumnProcessor.Parameters):
        """Keys of all processors."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of blocks that are cut to `max_len`, without those shorter than `min_len` or two tokens."""
        known = self.parameters
        tokens, kept = fields["tokens"].cut(known.max_len).not_shorter_than(max(SHORTEST, known.min_len))
        return {"input_ids": tokens, "length": tokens.lengths}, kept

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema without labels: the tokens themselves are to be predicted."""
        return super().columns(labelled=False)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `input_ids`, `attention_mask` and `target`, the next token, all of shape (B, T)."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        target = np.full_like(input_ids, NO_TARGET)
        target[:, :-1] = np.where(mask[:, 1:], input_ids[:, 1:], NO_TARGET)
        net_input: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask}
        return {**self._batch(samples, net_input, int(mask.sum())), "target": target}
