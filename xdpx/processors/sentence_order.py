"""Two parts of a text whose order must be told, beside masked tokens: ALBERT's SOP and BERT's NSP.

Shape letters: B samples, V tokens of all samples together, M tokens to guess.
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
"""Counters of the draws of a sample: where it is cut, and what becomes of the parts. Masks use up to 1 << 40."""

SHORTEST = 2
"""Tokens without which there are no two parts."""

Parts = tuple[Ragged, Integers, Integers]


class SentenceOrderProcessor(BertLMProcessor):
    """[CLS] first [SEP] second [SEP]: which comes first (0: as written, 1: swapped), and which tokens are masked.

    A block is cut where a sentence of it begins, anew in every epoch. Batches hold what those of `bert_lm` do, also
    `token_type_ids` and `cls_target` (B,). Use it with `corpus`, best with `break_mode: complete_doc`.

    Source: Lan et al., "ALBERT", ICLR 2020, section 3.1, inter-sentence coherence loss.
    """

    class Parameters(BertLMProcessor.Parameters):
        """How much is masked, and how."""

    num_special: ClassVar[int] = 3
    reads_marks: ClassVar[int] = marks.WORD_START | marks.SENTENCE_START
    orders: ClassVar[tuple[str, ...]] = ("next", "previous")
    """What each class means: how the second part stands to the first."""

    def meta(self) -> dict[str, Any]:
        """Add the number of orders."""
        return {**super().meta(), "num_classes": len(self.orders)}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Cut each block so that it fits; drop those that are shorter than `min_len` or cannot be parted."""
        columns, kept = super().numerize_many(fields, targets)
        tokens = columns["input_ids"]
        assert isinstance(tokens, Ragged)  # noqa: S101 - for the type checker
        parted = np.flatnonzero(tokens.lengths >= SHORTEST)
        tokens = tokens.take(parted)
        return {"input_ids": tokens, "length": tokens.lengths + self.num_special}, kept[parted]

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Part and order the blocks, then mask and pad."""
        draws = bits(key(seed, epoch), samples.ids)
        tokens, first, order = self._ordered(samples, draws)
        batch = self._masked(tokens, samples.ids, first=first, epoch=epoch, seed=seed, pad_multiple=pad_multiple)
        return {**batch, "cls_target": order}

    def _ordered(self, samples: Samples, draws: NDArray[np.uint64]) -> Parts:
        """Return (tokens of both parts, length of the first, class); all are drawn from one word per sample (B,)."""
        tokens = samples.ragged("input_ids")
        cut = cuts(tokens, units(bits(draws, CUT)))
        order = below(bits(draws, ORDER), len(self.orders))
        other = samples.ragged("other") if "other" in samples else None
        if other is not None:
            order = np.where(other.lengths > 0, order, order % (len(self.orders) - 1))
        kinds = np.array(self.orders)[order]
        return *arranged(tokens, cut, kinds, other), order


class NextSentenceProcessor(SentenceOrderProcessor):
    """[CLS] first [SEP] second [SEP]: does the second part follow (0), or is it from another text (1)? And masks.

    The other text is that of a block far away in the file, chosen in preprocessing. A file of one block has none.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1, task 2.
    """

    class Parameters(SentenceOrderProcessor.Parameters):
        """How much is masked, and how."""

    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "other": "ragged int32"}
    orders: ClassVar[tuple[str, ...]] = ("next", "other")

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return each block a part of another one."""
        columns, kept = super().numerize_many(fields, targets)
        tokens = columns["input_ids"]
        assert isinstance(tokens, Ragged)  # noqa: S101 - for the type checker
        return {**columns, "other": far_away(tokens)}, kept


def far_away(rows: Ragged) -> Ragged:
    """Return for each row the one that stands half of all rows further, as if the last was followed by the first.

    Of a single row there is no other: its place stays empty.
    """
    count = len(rows)
    if count < 2:
        return rows.cut(0)
    return rows.take((np.arange(count) + count // 2) % count)


def cuts(tokens: Ragged, chance: NDArray[np.float64]) -> Integers:
    """Choose one of the places where a sentence begins, but not the first; where there is none, any place but that.

    Args:
        tokens: marked rows of at least two ids each.
        chance: one number in [0, 1) per row.

    Returns:
        How many tokens of each row stand before the place, (B,).
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
    """Put the second part behind the first, before it, or a part of the other text in its place.

    Returns:
        (tokens, how many of each row are the first part).
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
