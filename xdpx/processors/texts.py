"""Processors of texts as ids without special tokens: one text, two, or one together with its string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.loaders import marks
from xdpx.processors.base import Batch, ColumnProcessor, Fields, with_targets
from xdpx.processors.samples import Column, Ragged, Samples


class SingleProcessor(ColumnProcessor):
    """Samples {tokens, target}; batches {tokens, mask}. A text without tokens becomes one unknown token."""

    learns_labels: ClassVar[bool] = True
    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"tokens": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of texts that are cut to `max_len`."""
        tokens = self._never_empty(fields["tokens"].cut(self.parameters.max_len))
        return with_targets({"tokens": tokens, "length": tokens.lengths}, targets)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `tokens` and `mask`, both of shape (B, T)."""
        tokens, mask = self._tokens(samples.ragged("tokens"), pad_multiple)
        return self._batch(samples, {"tokens": tokens, "mask": mask}, int(mask.sum()))


class PairProcessor(ColumnProcessor):
    """Samples {tokens1, tokens2, target}; batches {tokens1, mask1, tokens2, mask2}. `max_len` is for each text."""

    learns_labels: ClassVar[bool] = True
    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"tokens1": "ragged int32", "tokens2": "ragged int32"}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of texts that are cut to `max_len` each. `length` is the sum of both: the cost in a batch."""
        first, second = (self._never_empty(fields[name].cut(self.parameters.max_len)) for name in self.text_fields)
        return with_targets({"tokens1": first, "tokens2": second, "length": first.lengths + second.lengths}, targets)

    def full_length(self, fields: Fields) -> int:
        """Return the length of the longer text, uncut."""
        return max(len(fields["tokens1"]), len(fields["tokens2"]))

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with texts padded separately: `tokens1`, `mask1` (B, T1), `tokens2`, `mask2` (B, T2)."""
        tokens1, mask1 = self._tokens(samples.ragged("tokens1"), pad_multiple)
        tokens2, mask2 = self._tokens(samples.ragged("tokens2"), pad_multiple)
        net_input = {"tokens1": tokens1, "mask1": mask1, "tokens2": tokens2, "mask2": mask2}
        return self._batch(samples, net_input, int(mask1.sum() + mask2.sum()))


class StringProcessor(SingleProcessor):
    """As `single`; batches also have `string`, the text of each row with spaces between its tokens.

    Words that are not in the vocabulary are written as the unknown token. It is for models from files (`savedmodel`)
    that read text, and for users' own tasks and losses.
    """

    class Parameters(SingleProcessor.Parameters):
        """Keys of all processors."""

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `tokens` and `mask`, both of shape (B, T), and `string` (B,)."""
        batch = super().collate(samples, epoch=epoch, seed=seed, training=training, pad_multiple=pad_multiple)
        rows = samples.ragged("tokens")
        return {**batch, "string": np.array([self._string(rows.row(index)) for index in range(len(rows))], object)}

    def _string(self, ids: NDArray[np.int32]) -> str:
        return self._text(ids.tolist())


class StringMixProcessor(StringProcessor):
    """As `string`, for segmented text in word pieces: `string` has spaces between words.

    Use `loader: single_mix`; batches also have `word_start` (B, T), true at the first piece of each word.
    """

    class Parameters(StringProcessor.Parameters):
        """Keys of all processors."""

    reads_marks: ClassVar[int] = marks.WORD_START

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with `tokens` and `mask`, `string` (B,) and `word_start` (B, T)."""
        batch = super().collate(samples, epoch=epoch, seed=seed, training=training, pad_multiple=pad_multiple)
        marked, mask = batch["net_input"]["tokens"], batch["net_input"]["mask"]
        batch["net_input"]["tokens"] = marks.plain(marked)
        return {**batch, "word_start": marks.has(marks.WORD_START, marked) & mask}

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the words of a sample, for display."""
        return self._string(np.array(sample["tokens"], np.int32))

    def _string(self, ids: NDArray[np.int32]) -> str:
        starts = marks.has(marks.WORD_START, ids)
        pieces = [self._text([index]) for index in marks.plain(ids).tolist()]
        words = [
            f" {piece}" if start else piece.removeprefix("##") for piece, start in zip(pieces, starts, strict=True)
        ]
        return "".join(words).strip()
