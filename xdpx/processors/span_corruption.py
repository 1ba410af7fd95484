"""The processor for span corruption: a decoder generates spans removed from a block. B samples, V tokens of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.processors.base import Batch, ColumnProcessor, framed
from xdpx.processors.randomness import Words, bits, key
from xdpx.processors.samples import Column, Integers, Ragged, Samples, offsets_of
from xdpx.tokenizers.vocabulary import Vocabulary

NO_TARGET = -100
"""Target at padding."""
SHORTEST = 2
"""Minimum number of tokens: one to remove, and one to keep."""
TAKEN, LEFT = 1 << 42, 1 << 43
"""First counters of the draws of a sample that split the removed, and the kept, tokens into spans."""
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))

Bools = NDArray[np.bool_]


class SpanCorruptionProcessor(ColumnProcessor):
    """Batches {input_ids, attention_mask, decoder_input_ids} and target (B, U), -100 for none.

    Each removed span is replaced by a sentinel; the target consists of each sentinel followed by its span. Both end
    with `eos_word`; the decoder input begins with padding.

    Source: Raffel et al., "T5", JMLR 2020, section 3.1.4, with random segments as in its implementation.
    """

    class Parameters(ColumnProcessor.Parameters):
        """Keys of `span_corruption`."""

        corrupt_span_ratio: float = param(0.15, gt=0, lt=1, doc="Share of the tokens that are removed.", alters="score")
        corrupt_span_avg_len: float = param(3.0, ge=1, doc="Mean length of a removed span, in tokens.")
        eos_word: str = param("[SEP]", doc="End-of-text token.")
        eos_index: int | None = param(None, ge=0, doc="Id of `eos_word`; from the vocabulary.")
        sentinels: list[int] | None = param(
            None,
            doc="Ids of tokens that replace spans; from the vocabulary: <extra_id_0>, ..., or else [unused1], ...",
        )

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}
    special_words: ClassVar[tuple[str, ...]] = ("[SEP]", *SENTINELS)
    num_special: ClassVar[int] = 1

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self.eos_index = self._token_index("eos_index", parameters.eos_index, parameters.eos_word)
        self.sentinels = np.array(parameters.sentinels or _sentinels_of(vocabulary), np.int64)

    def meta(self) -> dict[str, Any]:
        """Return what training inherits, including the ids of the special tokens."""
        return {**super().meta(), "eos_index": self.eos_index, "sentinels": self.sentinels.tolist()}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of blocks that are cut to fit, without those shorter than `min_len` or two tokens."""
        tokens = fields["tokens"].cut(self.parameters.max_len - self.num_special)
        tokens, kept = tokens.not_shorter_than(max(SHORTEST, self.parameters.min_len))
        return {"input_ids": tokens, "length": tokens.lengths + self.num_special}, kept

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema without labels: the tokens themselves are to be predicted."""
        return super().columns(labelled=False)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a padded batch with spans removed: inputs (B, T), decoder inputs and targets (B, U)."""
        tokens = samples.ragged("input_ids")
        spans = self._spans(tokens.lengths, bits(key(seed, epoch), samples.ids))
        ends = (self.eos_index,)
        source = framed(ends, [_with_sentinels(tokens, ~spans.taken, spans.number, self.sentinels)], before=0)
        written = framed(ends, [_with_sentinels(tokens, spans.taken, spans.number, self.sentinels)], before=0)
        input_ids, mask = self._tokens(source, pad_multiple)
        output_ids, written_mask = self._tokens(written, pad_multiple)
        read = np.full_like(output_ids, self.pad_index)
        read[:, 1:] = output_ids[:, :-1]
        net_input: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask, "decoder_input_ids": read}
        target = np.where(written_mask, output_ids, NO_TARGET)
        return {**self._batch(samples, net_input, int(mask.sum())), "target": target}

    def _spans(self, lengths: Integers, draws: Words) -> Spans:
        known = self.parameters
        taken = np.clip(np.rint(lengths * known.corrupt_span_ratio).astype(np.int64), 1, lengths - 1)
        most = np.minimum(np.minimum(taken, lengths - taken), len(self.sentinels))
        count = np.clip(np.rint(taken / known.corrupt_span_avg_len).astype(np.int64), 1, most)
        return spans_of(parts(lengths - taken, count, bits(draws, LEFT)), parts(taken, count, bits(draws, TAKEN)))


class Spans(NamedTuple):
    """The division of samples into spans, each of which is some kept tokens followed by some removed ones.

    Attributes:
        taken: whether a token is removed, (V,).
        number: of the token's span in its sample, from 0, (V,).
    """

    taken: Bools
    number: Integers


def spans_of(left: Integers, taken: Integers) -> Spans:
    """Return the spans of all tokens from the numbers of kept and of removed tokens of each span, both (B, S)."""
    sizes = np.stack([left, taken], axis=2)
    flags = np.broadcast_to([False, True], sizes.shape)
    numbers = np.broadcast_to(np.arange(sizes.shape[1])[:, None], sizes.shape)
    return Spans(np.repeat(flags.ravel(), sizes.ravel()), np.repeat(numbers.ravel(), sizes.ravel()))


def parts(total: Integers, count: Integers, keys: Words) -> Integers:
    """Return a random division of each total (B,) into `count` (B,) parts of at least 1, all equally likely.

    Returns:
        The sizes of the parts, (B, S), where S is the maximum count; 0 after the last part of a row.
    """
    places = np.arange(int(total.max(initial=1)))
    scores = bits(keys[:, None], places)
    scores[(places == 0) | (places >= total[:, None])] = np.iinfo(np.uint64).max
    order = np.argsort(scores, axis=1, kind="stable")
    begins = np.zeros(scores.shape, np.bool_)
    np.put_along_axis(begins, order, places < count[:, None] - 1, axis=1)
    begins[:, 0] = True
    number = begins.cumsum(axis=1) - 1
    inside = places < total[:, None]
    most = int(count.max(initial=1))
    row = np.broadcast_to(np.arange(len(total))[:, None], number.shape)
    sizes = np.bincount((row * most + number)[inside], minlength=len(total) * most)
    return sizes.reshape(len(total), most)


def _with_sentinels(tokens: Ragged, kept: Bools, number: Integers, sentinels: NDArray[np.int64]) -> Ragged:
    """Return the kept tokens, with each run of other tokens replaced by the sentinel of its span."""
    begins = ~kept
    begins[1:] &= kept[:-1] | (number[1:] != number[:-1])
    begins[tokens.offsets[:-1]] = ~kept[tokens.offsets[:-1]]
    values = np.where(begins, sentinels[number], tokens.values)
    chosen = kept | begins
    counted = offsets_of(chosen.astype(np.int64))
    return Ragged(values[chosen].astype(np.int32), counted[tokens.offsets])


def _sentinels_of(vocabulary: Vocabulary | None) -> list[int]:
    """Return the ids of the sentinels in a vocabulary: <extra_id_0>, ..., or else [unused1], ...

    Raises:
        ConfigError: there are none, or there is no vocabulary.
    """
    unused = tuple(f"[unused{number}]" for number in range(1, len(SENTINELS) + 1))
    for words in (SENTINELS, unused):
        found = [index for word in words if vocabulary and (index := vocabulary.find(word)) is not None]
        if found:
            return found
    problem = "are not known: the vocabulary contains no <extra_id_0> and no [unused1], or there is no vocabulary."
    remedy = "Add such tokens to vocab.txt, give the ids of some, or inherit the data's meta."
    raise refusal("sentinels", problem, remedy)
