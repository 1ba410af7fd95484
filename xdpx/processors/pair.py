"""Two texts per sample, as word or character ids without special tokens: for match_cnn, re2 and their like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch, ColumnProcessor, Fields, with_targets
from xdpx.processors.samples import Column, Ragged, Samples


class PairProcessor(ColumnProcessor):
    """Samples {tokens1, tokens2, target}; batches {tokens1, mask1, tokens2, mask2}. `max_len` is that of each text."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"tokens1": "ragged int32", "tokens2": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut each text to `max_len`. The `length` to batch by is that of both together: it is what a batch costs."""
        first, second = (self._never_empty(fields[name].cut(self.parameters.max_len)) for name in self.text_fields)
        return with_targets({"tokens1": first, "tokens2": second, "length": first.lengths + second.lengths}, targets)

    def full_length(self, fields: Fields) -> int:
        """Length of the longer text before it is cut."""
        return max(len(fields["tokens1"]), len(fields["tokens2"]))

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad each text by itself: `tokens1` and `mask1` (B, T1), `tokens2` and `mask2` (B, T2)."""
        tokens1, mask1 = self._tokens(samples.ragged("tokens1"), pad_multiple)
        tokens2, mask2 = self._tokens(samples.ragged("tokens2"), pad_multiple)
        net_input = {"tokens1": tokens1, "mask1": mask1, "tokens2": tokens2, "mask2": mask2}
        return self._batch(samples, net_input, int(mask1.sum() + mask2.sum()))
