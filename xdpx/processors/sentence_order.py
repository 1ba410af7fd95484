"""Processors for predicting the order of two parts of a text, besides masked tokens: ALBERT's SOP and BERT's NSP.

Shape letters: B samples, V tokens of all samples together, M tokens to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.loaders import marks
from xdpx.processors.base import Batch
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.randomness import below, bits, key, units
from xdpx.processors.samples import Column, Integers, Ragged, Samples, offsets_of

CUT, ORDER = 1 << 41, (1 << 41) + 1
"""Counters of the draws of a sample: where it is split, and the order of the parts. Masks use up to 1 << 40."""

SHORTEST = 2
"""Minimum number of tokens of a block, which is split into two parts."""

Parts = tuple[Ragged, Integers, Integers]


class SentenceOrderProcessor(BertLMProcessor):
    """[CLS] first [SEP] second [SEP], masked as by `bert_lm`, and the order of the parts (0: as written, 1: swapped).

    A block is split at the start of a sentence, drawn again in every epoch. Batches are those of `bert_lm` with
    `token_type_ids` and `cls_target` (B,). Use it with `corpus`, best with `break_mode: complete_doc`.

    Source: Lan et al., "ALBERT", ICLR 2020, section 3.1, inter-sentence coherence loss.
    """

    class Parameters(BertLMProcessor.Parameters):
        """Keys of `bert_sop`."""

    num_special: ClassVar[int] = 3
    reads_marks: ClassVar[int] = marks.WORD_START | marks.SENTENCE_START
    orders: ClassVar[tuple[str, ...]] = ("next", "previous")
    """The meaning of each class: how the second part is related to the first."""

    def meta(self) -> dict[str, Any]:
        """Return what training inherits, including the number of orders as `num_classes`."""
        return {**super().meta(), "num_classes": len(self.orders)}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of blocks that are cut to fit, without those shorter than `min_len` or two tokens."""
        columns, kept = super().numerize_many(fields, targets)
        tokens = columns["input_ids"]
        assert isinstance(tokens, Ragged)  # noqa: S101 - for the type checker
        tokens, parted = tokens.not_shorter_than(SHORTEST)
        return {"input_ids": tokens, "length": tokens.lengths + self.num_special}, kept[parted]

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch of blocks that are split, ordered, masked and padded."""
        draws = bits(key(seed, epoch), samples.ids)
        tokens, first, order = self._ordered(samples, draws)
        batch = self._masked(tokens, samples.ids, first=first, epoch=epoch, seed=seed, pad_multiple=pad_multiple)
        return {**batch, "cls_target": order}

    def _ordered(self, samples: Samples, draws: NDArray[np.uint64]) -> Parts:
        """Return (tokens of both parts, length of the first, class), drawn from one word per sample, `draws` (B,)."""
        tokens = samples.ragged("input_ids")
        cut = cuts(tokens, units(bits(draws, CUT)))
        order = below(bits(draws, ORDER), len(self.orders))
        other = samples.ragged("other") if "other" in samples else None
        if other is not None:
            order = np.where(other.lengths > 0, order, order % (len(self.orders) - 1))
        kinds = np.array(self.orders)[order]
        return *arranged(tokens, cut, kinds, other), order


class NextSentenceProcessor(SentenceOrderProcessor):
    """[CLS] first [SEP] second [SEP], masked, and whether the second part follows (0) or is from another text (1).

    The other text is a block far away in the file, chosen in preprocessing. In a file of one block there is none.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1, task 2.
    """

    class Parameters(SentenceOrderProcessor.Parameters):
        """Keys of `bert_nsp`."""

    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "other": "ragged int32"}
    orders: ClassVar[tuple[str, ...]] = ("next", "other")

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples as `bert_sop` does, each with another block in the column `other`."""
        columns, kept = super().numerize_many(fields, targets)
        tokens = columns["input_ids"]
        assert isinstance(tokens, Ragged)  # noqa: S101 - for the type checker
        return {**columns, "other": far_away(tokens)}, kept


def far_away(rows: Ragged) -> Ragged:
    """Return rows rotated by half of their number, so that row i is replaced by one far away from it.

    A single row is replaced by an empty one.
    """
    count = len(rows)
    if count < 2:
        return rows.cut(0)
    return rows.take((np.arange(count) + count // 2) % count)


def cuts(tokens: Ragged, chance: NDArray[np.float64]) -> Integers:
    """Return where to split each row: at a random start of a sentence except the first, else at any position but 0.

    Args:
        tokens: marked rows of at least two ids each.
        chance: one number in [0, 1) per row, (B,).

    Returns:
        Number of tokens of each row before the split, (B,).
    """
    lengths = tokens.lengths
    begins = marks.has(marks.SENTENCE_START, tokens.values)
    begins[tokens.offsets[:-1]] = False
    places = np.flatnonzero(begins)
    edges = np.searchsorted(places, tokens.offsets)
    counts = np.diff(edges)
    anywhere = 1 + (chance * (lengths - 1)).astype(np.int64)
    if not len(places):
        return anywhere
    chosen = places[np.minimum(edges[:-1] + (chance * counts).astype(np.int64), len(places) - 1)]
    return np.where(counts > 0, chosen - tokens.offsets[:-1], anywhere)


def arranged(tokens: Ragged, cut: Integers, kinds: NDArray[np.str_], other: Ragged | None) -> tuple[Ragged, Integers]:
    """Return rows with the two parts in order, swapped, or with the second one replaced by part of another text.

    Args:
        tokens: rows of ids.
        cut: number of tokens of each row before the split, (B,).
        kinds: `next`, `previous` or `other` for each row, (B,).
        other: rows of the other texts, if there are any.

    Returns:
        (tokens, length of the first part of each row (B,)).
    """
    lengths, starts = tokens.lengths, tokens.offsets[:-1]
    swapped, replaced = kinds == "previous", kinds == "other"
    first = np.where(swapped, [starts + cut, lengths - cut], [starts, cut])
    second = np.where(swapped, [starts, cut], [starts + cut, lengths - cut])
    values = tokens.values
    if other is not None:
        elsewhere = [other.offsets[:-1] + len(values), np.minimum(other.lengths, lengths - cut)]
        second = np.where(replaced, elsewhere, second)
        values = np.concatenate([values, other.values])
    begins, sizes = np.stack([first, second], axis=2).reshape(2, -1)
    ends = offsets_of(sizes)
    source = np.arange(ends[-1]) + np.repeat(begins - ends[:-1], sizes)
    return Ragged(values[source], ends[::2]), first[1]
