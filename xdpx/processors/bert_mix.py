"""Processors of mixed granularity: word pieces for BERT, and the words they belong to. B rows, T pieces, W words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.processors.base import Batch, framed, with_targets
from xdpx.processors.bert import BertProcessor, balanced_cut
from xdpx.processors.samples import Column, Ragged, Samples, joined, offsets_of

Made = tuple[dict[str, Column], NDArray[np.int64]]
Arrays = dict[str, NDArray[Any]]


class BertMixProcessor(BertProcessor):
    """Base of processors of mixed granularity.

    Batches {input_ids (B, T), attention_mask (B, T), word_index (B, T), words (B, W), word_mask (B, W)}. `word_index`
    is the number, from 1, of the word that a piece belongs to, and 0 at special tokens. Without word marks from the
    loader every token is a word; without its words, `words` are all unknown.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(BertProcessor.Parameters):
        """Keys of processors of mixed granularity."""

        word_vocab_file: str | None = param(
            None, doc="Existing vocabulary of words, one per line; null: built from the data.", path="file"
        )
        min_word_count: int = param(-1, doc="Rarer words are unknown; -1: no limit.")
        max_word_vocab: int = param(-1, ge=-1, doc="Maximum number of words in the vocabulary; -1 or 0: no limit.")
        word_vocab_size: int | None = param(None, gt=0, doc="Number of words; from the vocabulary.")

    schema: ClassVar[dict[str, str]] = {
        "input_ids": "ragged int32", "word_index": "ragged int16", "words": "ragged int32",
    }  # fmt: skip
    reads_marks: ClassVar[int] = marks.WORD_START

    def _mixed(self, fields: Mapping[str, Ragged], tokens: Sequence[Ragged]) -> dict[str, Column]:
        """Return the columns of texts that have been cut."""
        numbers = [_word_numbers(text) for text in tokens]
        counts = [_counts(text, number) for text, number in zip(tokens, numbers, strict=True)]
        names = [name.replace("tokens", "words") for name in self.text_fields]
        words = [
            fields[name].cut(count) if name in fields else _unknown(count)
            for name, count in zip(names, counts, strict=True)
        ]
        if len(numbers) > 1:  # words of the second text are numbered from where those of the first end
            further = numbers[1].values + np.repeat(counts[0], numbers[1].lengths)
            numbers = [numbers[0], Ragged(further, numbers[1].offsets)]
        plain = [Ragged(marks.plain(text.values), text.offsets) for text in tokens]
        seps = [self.sep_index] * len(tokens)
        input_ids = framed([self.cls_index, *seps], plain, before=1)
        return {
            "input_ids": input_ids,
            "word_index": framed([0] * (1 + len(tokens)), numbers, before=1),
            "words": joined(words),
            "length": input_ids.lengths,
        }

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch with pieces padded to (B, T), words to (B, W)."""
        net_input = self._net_input(samples, pad_multiple)
        return self._batch(samples, net_input, self._num_tokens(net_input))

    def _net_input(self, samples: Samples, pad_multiple: int) -> Arrays:
        input_ids, mask = self._tokens(samples.ragged("input_ids"), pad_multiple)
        word_index = np.zeros(mask.shape, np.int64)
        word_index[mask] = samples.ragged("word_index").values
        rows = samples.ragged("words")
        word_mask = rows.mask(-(-int(rows.lengths.max(initial=1)) // pad_multiple) * pad_multiple)
        words = np.zeros(word_mask.shape, np.int64)
        words[word_mask] = rows.values
        return {
            "input_ids": input_ids, "attention_mask": mask, "word_index": word_index, "words": words,
            "word_mask": word_mask,
        }  # fmt: skip

    def _num_tokens(self, net_input: Mapping[str, Any]) -> int:
        """Return the number of pieces without padding; words are not counted."""
        return int(net_input["attention_mask"].sum())


class BertSingleMixProcessor(BertMixProcessor):
    """[CLS] text [SEP] in pieces, and the words of the text."""

    class Parameters(BertMixProcessor.Parameters):
        """Keys of `bert_single_mix`."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    num_special: ClassVar[int] = 2

    def numerize_many(self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None) -> Made:
        """Return samples of texts cut to fit into `max_len`; a word is kept if its first piece is."""
        return with_targets(self._mixed(fields, [fields["tokens"].cut(self._room)]), targets)


class BertPairMixProcessor(BertMixProcessor):
    """[CLS] first [SEP] second [SEP] in pieces, and the words of both texts; batches also have token_type_ids."""

    class Parameters(BertMixProcessor.Parameters):
        """Keys of `bert_pair_mix`."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {**BertMixProcessor.schema, "second_start": "int32"}
    num_special: ClassVar[int] = 3

    def numerize_many(self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None) -> Made:
        """Return samples of pairs, cut (the longer text first) to fit into `max_len` with special tokens."""
        first, second = fields["tokens1"], fields["tokens2"]
        kept_first, kept_second = balanced_cut(first.lengths, second.lengths, self._room)
        first, second = first.cut(kept_first), second.cut(kept_second)
        return with_targets({**self._mixed(fields, [first, second]), "second_start": first.lengths + 2}, targets)

    def _net_input(self, samples: Samples, pad_multiple: int) -> Arrays:
        found = super()._net_input(samples, pad_multiple)
        mask = found["attention_mask"]
        second = (np.arange(mask.shape[1]) >= samples.numbers("second_start")[:, None]) & mask
        return {**found, "token_type_ids": second.astype(np.int64)}


def _word_numbers(tokens: Ragged) -> Ragged:
    """Return the number of each token's word in its row, from 1."""
    counted = marks.words_before(tokens.values)
    return Ragged(counted[1:] - np.repeat(counted[tokens.offsets[:-1]], tokens.lengths), tokens.offsets)


def _counts(tokens: Ragged, numbers: Ragged) -> NDArray[np.int64]:
    """Return the number of words of each row, i.e. the word number of its last token."""
    return np.where(tokens.lengths > 0, np.append(0, numbers.values)[tokens.offsets[1:]], 0)


def _unknown(counts: NDArray[np.int64]) -> Ragged:
    """Return rows of the unknown word, whose id is 1."""
    return Ragged(np.ones(counts.sum(), np.int32), offsets_of(counts))
