"""One text per sample, as word or character ids without special tokens: for cls_cnn and its like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.base import Batch, ColumnProcessor, with_targets
from xdpx.processors.samples import Column, Ragged, Samples


class SingleProcessor(ColumnProcessor):
    """Samples {tokens, target}; batches {tokens, mask}. A text without tokens becomes one unknown token."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"tokens": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut each text to `max_len`."""
        tokens = self._never_empty(fields["tokens"].cut(self.parameters.max_len))
        return with_targets({"tokens": tokens, "length": tokens.lengths}, targets)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad to `tokens` and `mask`, both of shape (B, T)."""
        tokens, mask = self._tokens(samples.ragged("tokens"), pad_multiple)
        return self._batch(samples, {"tokens": tokens, "mask": mask}, int(mask.sum()))
