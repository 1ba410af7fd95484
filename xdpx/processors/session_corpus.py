"""The processor for dialogues with messages replaced by those of others. B sessions, K messages each, T positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.processors.base import Batch, Fields
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.randomness import bits, key, units
from xdpx.processors.samples import Column, Integers, Ragged, Samples
from xdpx.processors.sentence_order import far_away

WINDOW = 1 << 41
"""Counter of the draw of a session that decides where its window begins."""
REPLACED = 1 << 42
"""First counter of the draws that decide which messages are replaced."""


class SessionCorpusProcessor(BertLMProcessor):
    """A random window of each session, another in every epoch, with some messages replaced, and all masked.

    Batches have ids and masks (B, K, T), with each message as [CLS] text [SEP] of at most `max_len` tokens;
    `masked_positions` (M,), flat indices into (B * K * T,); `messages` (N,), flat indices into (B * K,) of the messages
    that exist; and `cls_target` (B, K), 1 for a message of another session.
    """

    class Parameters(BertLMProcessor.Parameters):
        """Keys of `session_corpus`."""

        max_messages: int = param(8, ge=2, doc="Maximum number of messages of a session in one sample.")
        replace_prob: float = param(
            0.2, ge=0, le=1, doc="Share of the messages that come from another session.", alters="score"
        )

    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "other": "ragged int32"}
    reads_marks: ClassVar[int] = marks.WORD_START | marks.SENTENCE_START

    def full_length(self, fields: Fields) -> int:
        """Return 0, because sessions may have any length. Their messages are measured by the merger."""
        del fields
        return 0

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return uncut sessions, each with up to `max_messages` messages of another one in the column `other`."""
        tokens = fields["tokens"]
        kept = np.flatnonzero(tokens.lengths > 0)
        tokens = tokens.take(kept)
        other = far_away(tokens)
        cut = _Messages.of(other).first(self.parameters.max_messages)
        length = np.minimum(tokens.lengths, self.parameters.max_messages * self.parameters.max_len)
        return {"input_ids": tokens, "other": other.cut(cut), "length": length}, kept

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch of windows with messages replaced, masked and padded."""
        draws = bits(key(seed, epoch), samples.ids)
        messages, row, slot, replaced = self._window(samples, draws)
        most = self.parameters.max_messages
        flat = self._masked(messages, samples.ids[row] * most + slot, epoch=epoch, seed=seed, pad_multiple=pad_multiple)
        width = int(slot.max(initial=0)) + 1
        place = row * width + slot
        shape = (len(samples) * width, flat["net_input"]["input_ids"].shape[1])
        input_ids, mask, target = (
            np.full(shape, self.pad_index),
            np.zeros(shape, np.bool_),
            np.zeros(shape[0], np.int64),
        )
        input_ids[place], mask[place] = flat["net_input"]["input_ids"], flat["net_input"]["attention_mask"]
        target[place] = replaced
        message, column = np.divmod(flat["net_input"]["masked_positions"], shape[1])
        net_input: dict[str, Any] = {
            "input_ids": input_ids.reshape(-1, width, shape[1]),
            "attention_mask": mask.reshape(-1, width, shape[1]),
            "masked_positions": place[message] * shape[1] + column,
            "messages": place,
        }
        batch = {**flat, "id": samples.ids, "net_input": net_input}
        return {**batch, "cls_target": target.reshape(-1, width)}

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        """Return the sessions in [start, stop); `messages` become relative to the first of them."""
        messages, slots = batch["net_input"]["messages"], batch["net_input"]["input_ids"].shape[1]
        first, last = np.searchsorted(messages, [start * slots, stop * slots])
        found = super()._rows(batch, start, stop)
        found["net_input"]["messages"] = messages[first:last] - start * slots
        return found

    def _window(
        self, samples: Samples, draws: NDArray[np.uint64]
    ) -> tuple[Ragged, Integers, Integers, NDArray[np.bool_]]:
        """Return (messages (N,), the session of each, its position in the window, whether it was replaced)."""
        own, other = (_Messages.of(samples.ragged(name)) for name in ("input_ids", "other"))
        sizes = np.minimum(own.counts, self.parameters.max_messages)
        first = (units(bits(draws, WINDOW)) * (own.counts - sizes + 1)).astype(np.int64)
        row = np.repeat(np.arange(len(sizes)), sizes)
        slot = np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]
        source = own.edges[row] + first[row] + slot
        replaced = units(bits(draws[row], REPLACED + slot)) < self.parameters.replace_prob
        replaced &= other.counts[row] > 0
        elsewhere = other.edges[row] + slot % np.maximum(other.counts[row], 1)
        values = np.concatenate([own.rows.values, other.rows.values])
        offsets = np.concatenate([own.rows.offsets, len(own.rows.values) + other.rows.offsets[1:]])
        chosen = np.where(replaced, len(own.rows) + elsewhere, source)
        return Ragged(values, offsets).take(chosen).cut(self._room), row, slot, replaced


class _Messages(NamedTuple):
    """The messages of some sessions.

    Attributes:
        rows: a row per message.
        edges: index of the first message of each session, (B,).
        counts: number of messages of each session, (B,).
        offsets: of the sessions, in tokens, (B + 1,).
    """

    rows: Ragged
    edges: Integers
    counts: Integers
    offsets: Integers

    @classmethod
    def of(cls, sessions: Ragged) -> _Messages:
        """Return the messages of sessions, split at marks."""
        begins = marks.has(marks.SENTENCE_START, sessions.values)
        begins[sessions.offsets[:-1][sessions.lengths > 0]] = True
        starts = np.flatnonzero(begins)
        edges = np.searchsorted(starts, sessions.offsets)
        rows = Ragged(sessions.values, np.append(starts, len(sessions.values)))
        return cls(rows, edges[:-1], np.diff(edges), sessions.offsets)

    def first(self, most: int) -> Integers:
        """Return the total number of tokens of the first `most` messages of each session, (B,)."""
        ends: Integers = self.rows.offsets[self.edges + np.minimum(self.counts, most)]
        return ends - self.offsets[:-1]
