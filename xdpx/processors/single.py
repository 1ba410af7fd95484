"""One text per sample, as word or character ids without special tokens: for cls_cnn and its like."""

from __future__ import annotations

from typing import Any, ClassVar

from xdpx.processors.base import Batch, Fields, Processor, labelled
from xdpx.processors.samples import Samples
from xdpx.tokenizers.vocabulary import Vocabulary


class SingleProcessor(Processor):
    """Samples {tokens, target}; batches {tokens, mask}. A text without tokens becomes one unknown token."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"tokens": "ragged int32"}

    def __init__(self, parameters: Processor.Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self._max_len = parameters.max_len
        self._nothing = self._unknown()

    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Cut the text to `max_len`."""
        tokens = fields["tokens"][: self._max_len] or self._nothing
        return labelled({"tokens": tokens, "length": len(tokens)}, target)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad to `tokens` and `mask`, both of shape (B, T)."""
        tokens, mask = self._tokens(samples.ragged("tokens"), pad_multiple)
        return self._batch(samples, {"tokens": tokens, "mask": mask}, int(mask.sum()))
