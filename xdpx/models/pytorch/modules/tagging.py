"""What models that give a tag to each word share. B rows, T tokens, W words, C tags, D width."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class TagScores(NamedTuple):
    """What speaks for a tag.

    Attributes:
        emissions: by the word itself, (B, W, C).
        neighbours: by the tags beside it, (C + 1, C + 1) as in `modules.crf`; None where words are judged alone.
    """

    emissions: Tensor
    neighbours: Tensor | None


def of_words(hidden_BTD: Tensor, word_starts_BW: Tensor) -> Tensor:
    """Give (B, W, D): what was worked out for the token at which each word begins."""
    return hidden_BTD.gather(1, word_starts_BW.unsqueeze(-1).expand(-1, -1, hidden_BTD.shape[-1]))
