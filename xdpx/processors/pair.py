"""Two texts per sample, as word or character ids without special tokens: for match_cnn, re2 and their like."""

from __future__ import annotations

from typing import Any, ClassVar

from xdpx.processors.base import Batch, Fields, Processor, labelled
from xdpx.processors.samples import Samples
from xdpx.tokenizers.vocabulary import Vocabulary


class PairProcessor(Processor):
    """Samples {tokens1, tokens2, target}; batches {tokens1, mask1, tokens2, mask2}. `max_len` is that of each text."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"tokens1": "ragged int32", "tokens2": "ragged int32"}

    def __init__(self, parameters: Processor.Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self._max_len = parameters.max_len
        self._nothing = self._unknown()

    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Cut each text to `max_len`. The `length` to batch by is that of both together: it is what a batch costs."""
        first = fields["tokens1"][: self._max_len] or self._nothing
        second = fields["tokens2"][: self._max_len] or self._nothing
        return labelled({"tokens1": first, "tokens2": second, "length": len(first) + len(second)}, target)

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
