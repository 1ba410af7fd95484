"""The processor for tagging: the tokens of words, and where each word begins. B rows, T tokens, W words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.processors.base import Batch, Fields, framed
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.processors.windows import own_parts, windows_of

NO_TAG = -100
"""Target at padding."""


class BertTokenProcessor(BertProcessor):
    """[CLS] text [SEP], and the position of the first token of each word, which represents the word.

    Batches {input_ids, attention_mask, word_starts (B, W), word_mask (B, W)}; `target` (B, W) has the class of each
    word. A text that is too long becomes several samples, overlapping windows, and `window` (B,) numbers those of a
    text from 0; each word is tagged in exactly one window, and only context in the others. Without word marks from the
    loader, every token is a word.

    Source: Devlin et al., "BERT", NAACL 2019, section 5.3.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(BertProcessor.Parameters):
        """The treatment of texts that are too long."""

        doc_stride: int | None = param(
            None, gt=0, doc="Tokens from the start of one window of a long text to the next; null: half a window."
        )

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {
        "input_ids": "ragged int32", "word_starts": "ragged int16", "window": "int32",
    }  # fmt: skip
    num_special: ClassVar[int] = 2
    reads_marks: ClassVar[int] = marks.WORD_START

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return the windows of each text that fit into `max_len`; those without the start of a word are dropped."""
        whole = fields["tokens"]
        stride = self.parameters.doc_stride or max(self._room // 2, 1)
        windows = windows_of(whole.lengths, np.full(len(whole), self._room), stride)
        tokens = whole.parts(windows.rows, windows.starts, windows.lengths)
        first, behind = (np.repeat(each, tokens.lengths) for each in own_parts(windows, whole.lengths))
        place = tokens.places(windows.starts)  # within its text
        begins = marks.has(marks.WORD_START, tokens.values)
        begins = (begins if begins.any() else True) & (first <= place) & (place < behind)
        counted = np.concatenate([[0], np.cumsum(begins)])[tokens.offsets]
        kept = np.flatnonzero(np.diff(counted))  # a window may consist of the rest of a very long word
        rows = windows.rows[kept]
        starts = Ragged(tokens.places(np.ones(len(tokens), np.int64))[begins], counted)  # behind [CLS]
        plain = Ragged(marks.plain(tokens.values), tokens.offsets).take(kept)
        input_ids = framed([self.cls_index, self.sep_index], [plain], before=1)
        columns: dict[str, Column] = {
            "input_ids": input_ids,
            "word_starts": starts.take(kept),
            "window": np.arange(len(rows)) - np.searchsorted(rows, rows),
            "length": input_ids.lengths,
        }
        if targets is not None:
            columns["target"] = targets[rows]
        return columns, rows

    def with_label_sets(self, samples: Samples, sets: Ragged) -> Samples:
        """Return windows with `target`, the index of their text in `sets`, replaced by the tags of their own words."""
        counts = samples.ragged("word_starts").lengths
        before = np.cumsum(counts) - counts
        first = before - np.maximum.accumulate(np.where(samples.numbers("window") == 0, before, 0))
        return samples.replaced("target", sets.parts(samples.numbers("target"), first, counts))

    def full_length(self, fields: Fields) -> int:
        """Return the length with special tokens, at most `max_len`, because windows cut nothing."""
        length: int = min(super().full_length(fields), self.parameters.max_len)
        return length

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with tokens padded to (B, T), words and their tags to (B, W)."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        starts = samples.ragged("word_starts")
        width = -(-int(starts.lengths.max(initial=1)) // pad_multiple) * pad_multiple
        word_mask = starts.mask(width)
        word_starts = np.zeros(word_mask.shape, np.int64)
        word_starts[word_mask] = starts.values
        net_input: dict[str, Any] = {
            "input_ids": input_ids, "attention_mask": mask, "word_starts": word_starts, "word_mask": word_mask,
        }  # fmt: skip
        window = samples.numbers("window") if "window" in samples else np.zeros(len(samples))  # none in older stores
        batch: Batch = {"id": samples.ids, "net_input": net_input, "ntokens": int(mask.sum())}
        batch["window"] = window.astype(np.int64)
        if "target" in samples:
            tags = samples.ragged("target").cut(starts.lengths)
            batch["target"] = np.full(word_mask.shape, NO_TAG, np.int64)
            batch["target"][tags.mask(width)] = tags.values
        return batch

    def _num_tokens(self, net_input: Mapping[str, Any]) -> int:
        """Return the number of tokens without padding; words are not counted."""
        return int(net_input["attention_mask"].sum())
