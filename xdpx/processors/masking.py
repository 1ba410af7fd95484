"""Choose the tokens that a masked language model is to predict, and their replacements, for a whole batch at once.

Every draw is a hash of (seed, epoch, sample id, position), so the mask of a sample in an epoch does not depend on its
batch, worker or rank.

Shape letters: B samples, V tokens of all samples together, W words of all samples together, M tokens to predict.
Source: Devlin et al., arXiv 1810.04805, section 3.1, and its whole-word variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.processors.randomness import Words, below, bits, key, units
from xdpx.processors.samples import Ragged

SCORE, FATE, REPLACEMENT = range(3)
"""Counters of draws: the score of a word, by which words are chosen; its treatment; the replacement of a token."""

NUM_WORDS = 1 << 40
"""Counter of the single draw of each sample, for the number of words; larger than any position."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TokenLayout:
    """The sample, position and word of each token, and its position in the word.

    Attributes:
        row, position, word, within: of each token, shape (V,).
        first: index of each word's first token, shape (W,).
        size: number of tokens of each word, shape (W,).
        lengths: number of tokens of each sample, shape (B,).
    """

    row: Ints
    position: Ints
    word: Ints
    within: Ints
    first: Ints
    size: Ints
    lengths: Ints

    @classmethod
    def of(cls, tokens: Ragged, word_starts: Bools | None) -> TokenLayout:
        """Return the layout of rows of tokens. Without `word_starts` every token is a word."""
        lengths = tokens.lengths
        indices = np.arange(len(tokens.values))
        row = np.repeat(np.arange(len(lengths)), lengths)
        position = indices - tokens.offsets[:-1][row]
        starts = np.ones(len(indices), np.bool_) if word_starts is None else word_starts | (position == 0)
        first = np.flatnonzero(starts)
        word = np.cumsum(starts) - 1
        size = np.diff(first, append=len(indices))
        return cls(row, position, word, indices - first[word], first, size, lengths)


@dataclass(frozen=True)
class Masking:
    """How much is masked, and how.

    Attributes:
        mask_prob: share of the words to predict; at least one per sample.
        leave_unmasked_prob: share of these that are left unchanged.
        random_token_prob: share of these that become random tokens; the rest become the mask token.
        max_predictions: maximum number of tokens to predict per sample: a number (int) or a share (float).
        mask_index: id of the mask token.
        candidates: ids that may replace a token; no special ones.
        cumulative: cumulative probabilities of the candidates; None if they are uniform.
    """

    mask_prob: float
    leave_unmasked_prob: float
    random_token_prob: float
    max_predictions: int | float
    mask_index: int
    candidates: NDArray[np.int64]
    cumulative: NDArray[np.float64] | None = None

    def corrupt(
        self, tokens: Ragged, *, ids: Ints, word_starts: Bools | None, seed: int, epoch: int
    ) -> tuple[Bools, Ints]:
        """Choose the tokens to predict, and replace them.

        Args:
            tokens: a row of ids per sample, without special ones.
            ids: of the samples, shape (B,).
            word_starts: whether a token begins a word, shape (V,), or None to mask single tokens.
            seed: of the run.
            epoch: each epoch has other masks.

        Returns:
            (which tokens are to be predicted, the tokens after corruption), both of shape (V,).
        """
        layout = TokenLayout.of(tokens, word_starts)
        sample_keys = bits(key(seed, epoch), ids)
        word_keys = bits(sample_keys[layout.row[layout.first]], layout.position[layout.first])
        chosen = self._choose(layout, sample_keys, word_keys)
        guessed = np.flatnonzero(chosen)
        token_keys = bits(sample_keys[layout.row[guessed]], layout.position[guessed])
        corrupted = tokens.values.copy()
        corrupted[guessed] = self._replace(corrupted[guessed], token_keys, word_keys[layout.word[guessed]])
        return chosen, corrupted

    def _choose(self, layout: TokenLayout, sample_keys: Words, word_keys: Words) -> Bools:
        """Return which tokens are chosen, (V,): of each sample the words with the lowest scores.

        The number of words is drawn; words that would exceed the limit on tokens are skipped. If the first word alone
        exceeds the limit, only its beginning is chosen.
        """
        num_rows = len(layout.lengths)
        row = layout.row[layout.first]
        num_words = np.bincount(row, minlength=num_rows)
        wanted = np.floor(self.mask_prob * num_words + units(bits(sample_keys, NUM_WORDS)))
        limits = self._limits(layout.lengths)
        order = _by_row_and_score(row, bits(word_keys, SCORE))
        row = row[order]
        rank = np.arange(len(row)) - (np.cumsum(num_words) - num_words)[row]
        size = layout.size[order]
        before = np.cumsum(size) - size - (np.cumsum(layout.lengths) - layout.lengths)[row]
        taken = np.empty(len(row), np.bool_)
        taken[order] = (rank == 0) | ((rank < wanted[row]) & (before + size <= limits[row]))
        return taken[layout.word] & (layout.within < limits[layout.row])

    def _limits(self, lengths: Ints) -> Ints:
        if isinstance(self.max_predictions, int):
            return np.full(len(lengths), self.max_predictions)
        return np.maximum(1, (self.max_predictions * lengths).astype(np.int64))

    def _replace(self, tokens: Ints, token_keys: Words, word_keys: Words) -> Ints:
        """Return the replacements of the M tokens to predict; the tokens of one word are treated alike."""
        fate = units(bits(word_keys, FATE))
        stays = fate < self.leave_unmasked_prob
        changes = ~stays & (fate < self.leave_unmasked_prob + self.random_token_prob)
        replaced = np.where(stays, tokens, self.mask_index)
        replaced[changes] = self._draw(bits(token_keys[changes], REPLACEMENT))
        return replaced

    def _draw(self, words: Words) -> Ints:
        if self.cumulative is None:
            return self.candidates[below(words, len(self.candidates))]
        return self.candidates[np.searchsorted(self.cumulative, units(words), side="right")]


def _by_row_and_score(rows: Ints, scores: Words) -> Ints:
    """Return the order of words by row, then score (44 bits of it), then position, from a single sort."""
    return np.argsort((rows.astype(np.uint64) << np.uint64(44)) | (scores >> np.uint64(20)), kind="stable")


def cumulative_weights(counts: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Return the cumulative probabilities of tokens that are drawn in proportion to count ** alpha."""
    cumulative = np.cumsum(counts**alpha)
    cumulative /= cumulative[-1]
    cumulative[-1] = 1.0
    return cumulative
