"""Samples for tagging: the tokens of words, and where each word begins. B rows, T tokens, W words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.loaders import marks
from xdpx.processors.base import Batch, framed
from xdpx.processors.bert import BertProcessor
from xdpx.processors.samples import Column, Ragged, Samples

NO_TAG = -100
"""Target of what is no word but padding."""


class BertTokenProcessor(BertProcessor):
    """[CLS] text [SEP], and the place of the first token of each word, which stands for the word.

    Batches {input_ids, attention_mask, word_starts (B, W), word_mask (B, W)}; `target` (B, W) holds the class of each
    word. Words that `max_len` cuts off lose their tags. Where the loader marks no words every token is one.

    Source: Devlin et al., "BERT", NAACL 2019, section 5.3.
    """

    class Parameters(BertProcessor.Parameters):
        """What all processors for BERT share."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "word_starts": "ragged int16"}
    num_special: ClassVar[int] = 2
    reads_marks: ClassVar[int] = marks.WORD_START

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut each text so that it fits with its special tokens; texts without a word are dropped."""
        tokens = fields["tokens"].cut(self._room)
        kept = np.flatnonzero(tokens.lengths > 0)
        tokens = tokens if len(kept) == len(tokens) else tokens.take(kept)
        begins = marks.has(marks.WORD_START, tokens.values)
        begins = begins if begins.any() else np.ones(len(begins), np.bool_)
        counted = np.concatenate([[0], np.cumsum(begins)])
        places = tokens.places(np.ones(len(tokens), np.int64))  # behind [CLS], in each row
        word_starts = Ragged(places[begins].astype(np.int16), counted[tokens.offsets])
        plain = Ragged(marks.plain(tokens.values), tokens.offsets)
        input_ids = framed([self.cls_index, self.sep_index], [plain], before=1)
        columns: dict[str, Column] = {"input_ids": input_ids, "word_starts": word_starts, "length": input_ids.lengths}
        if targets is not None:
            columns["target"] = targets[kept]
        return columns, kept

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad tokens to (B, T), words and their tags to (B, W)."""
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        starts = samples.ragged("word_starts")
        width = -(-int(starts.lengths.max(initial=1)) // pad_multiple) * pad_multiple
        word_mask = starts.mask(width)
        word_starts = np.zeros(word_mask.shape, np.int64)
        word_starts[word_mask] = starts.values
        net_input: dict[str, Any] = {
            "input_ids": input_ids, "attention_mask": mask, "word_starts": word_starts, "word_mask": word_mask,
        }  # fmt: skip
        batch: Batch = {"id": samples.ids, "net_input": net_input, "ntokens": int(mask.sum())}
        if "target" in samples:
            tags = samples.ragged("target").cut(starts.lengths)
            batch["target"] = np.full(word_mask.shape, NO_TAG, np.int64)
            batch["target"][tags.mask(width)] = tags.values
        return batch

    def _num_tokens(self, net_input: Mapping[str, Any]) -> int:
        """Count tokens without padding; words are none of their own."""
        return int(net_input["attention_mask"].sum())
