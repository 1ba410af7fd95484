"""Causal language modelling: blocks of text in which every token is guessed from those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch, ColumnProcessor
from xdpx.processors.samples import Column, Ragged, Samples

NO_TARGET = -100
"""Stands where nothing is guessed: at padding, and behind the last token."""
SHORTEST = 2
"""Tokens without which there is nothing to guess, and nothing to guess it from."""


class CausalLMProcessor(ColumnProcessor):
    """Samples {input_ids}, no special tokens; batches {input_ids, attention_mask} and target (B, T), -100 for none."""

    class Parameters(ColumnProcessor.Parameters):
        """What all processors share."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut each block so that it fits; drop those that are shorter than `min_len`, or than two tokens."""
        tokens = fields["tokens"].cut(self.parameters.max_len)
        kept = np.flatnonzero(tokens.lengths >= max(SHORTEST, self.parameters.min_len))
        tokens = tokens if len(kept) == len(tokens) else tokens.take(kept)
        return {"input_ids": tokens, "length": tokens.lengths}, kept

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema; what must be guessed is the text itself, so labels are not kept."""
        return super().columns(labelled=False)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad to `input_ids`, `attention_mask` and `target`, the token that comes next, all of shape (B, T)."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        target = np.full_like(input_ids, NO_TARGET)
        target[:, :-1] = np.where(mask[:, 1:], input_ids[:, 1:], NO_TARGET)
        net_input: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask}
        return {**self._batch(samples, net_input, int(mask.sum())), "target": target}
