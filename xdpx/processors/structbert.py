"""The processor for StructBERT: masked tokens, shuffled words, and the order of sentences."""

from __future__ import annotations

from itertools import permutations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.processors.masking import TokenLayout
from xdpx.processors.randomness import Words, below, bits, key, units
from xdpx.processors.samples import Integers, Ragged
from xdpx.processors.sentence_order import NextSentenceProcessor

PHASE = (1 << 41) + 2
"""Counter of the draw of a sample that decides where its trigrams begin."""
SHUFFLED, WHICH = 3, 4
"""Counters of the draws of a token: whether its trigram is shuffled, and how. Masks use 0 to 2."""

WIDTH = 3
OTHER_ORDERS = np.array(list(permutations(range(WIDTH)))[1:])
"""All permutations of three words except the identity, shape (5, 3)."""

Bools = NDArray[np.bool_]


class StructBertProcessor(NextSentenceProcessor):
    """Masks as of `bert_lm`; shuffled trigrams whose order is to be restored; and the relation of the parts of a block.

    The second part follows the first (class 0), precedes it (1), or is from another text (2). Tokens of a shuffled
    trigram are predicted like masked ones.

    Source: Wang et al., "StructBERT", ICLR 2020, sections 2.2 and 2.3.
    """

    class Parameters(NextSentenceProcessor.Parameters):
        """Keys of `structbert`."""

        shuffle_prob: float = param(
            0.05, ge=0, le=1, doc="Share of the trigrams without masks that are shuffled.", alters="score"
        )

    orders: ClassVar[tuple[str, ...]] = ("next", "previous", "other")

    def _corrupt(
        self, tokens: Ragged, ids: Integers, *, first: Integers | None, seed: int, epoch: int
    ) -> tuple[Bools, Integers]:
        chosen, corrupted = super()._corrupt(tokens, ids, first=first, seed=seed, epoch=epoch)
        border = tokens.lengths if first is None else first
        begins, orders = shuffled_trigrams(
            tokens, chosen, border, bits(key(seed, epoch), ids), share=self.parameters.shuffle_prob
        )
        places = begins[:, None] + np.arange(WIDTH)
        corrupted[places] = np.take_along_axis(corrupted[places], orders, axis=1)
        chosen[places] = True
        return chosen, corrupted


def shuffled_trigrams(
    tokens: Ragged, chosen: Bools, border: Integers, draws: Words, *, share: float
) -> tuple[Integers, Integers]:
    """Choose trigrams without masked tokens that lie within one part, and their new orders.

    Rows are divided into trigrams starting at one of their first three tokens, so that none overlap.

    Args:
        tokens: rows of ids.
        chosen: which tokens are masked, (V,).
        border: length of the first part of each row, (B,).
        draws: a word per row, (B,).
        share: of the trigrams, to be shuffled.

    Returns:
        (index of the first token of each, (S,); its new order, (S, 3)).
    """
    layout = TokenLayout.of(tokens, None)
    row, position = layout.row, layout.position
    begins = (position - below(bits(draws, PHASE), WIDTH)[row]) % WIDTH == 0
    begins &= position + WIDTH <= layout.lengths[row]
    begins &= (position >= border[row]) | (position + WIDTH <= border[row])
    found = np.flatnonzero(begins)
    found = found[~chosen[found[:, None] + np.arange(WIDTH)].any(axis=1)]
    keys = bits(draws[row[found]], position[found])
    taken = units(bits(keys, SHUFFLED)) < share
    return found[taken], OTHER_ORDERS[below(bits(keys[taken], WHICH), len(OTHER_ORDERS))]
