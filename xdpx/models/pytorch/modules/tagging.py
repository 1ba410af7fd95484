"""Tags of words: what speaks for each, and a chain of tags as one choice. B rows, T tokens, W words, C tags, D width.

A mask (B, W) is true at words, which stand in front. Scores of neighbours are one matrix (C + 1, C + 1): entry [i, j]
for tag j behind tag i; row C for what may begin a chain, column C for what may end it.

Source: Lafferty et al., "Conditional Random Fields", ICML 2001, section 3; in front of an encoder: Lample et al.,
"Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TagScores(NamedTuple):
    """What speaks for a tag.

    Attributes:
        emissions: by the word itself, (B, W, C).
        neighbours: by the tags beside it, (C + 1, C + 1) as in `chain_scores`; None where words are judged alone.
    """

    emissions: Tensor
    neighbours: Tensor | None


def of_words(hidden_BTD: Tensor, word_starts_BW: Tensor) -> Tensor:
    """Return (B, W, D): what was worked out for the token at which each word begins."""
    return hidden_BTD.gather(1, word_starts_BW.unsqueeze(-1).expand(-1, -1, hidden_BTD.shape[-1]))


def chain_scores(emissions_BWC: Tensor, neighbours: Tensor, tags_BW: Tensor, mask_BW: Tensor) -> Tensor:
    """Return the score (B,) of one chain of tags for each row; tags at padding do not matter."""
    tags = tags_BW.masked_fill(~mask_BW, 0)
    last = neighbours.shape[0] - 1
    own = emissions_BWC.gather(2, tags.unsqueeze(-1)).squeeze(-1)
    between = neighbours[tags[:, :-1], tags[:, 1:]] * mask_BW[:, 1:]
    ends = tags.gather(1, mask_BW.sum(dim=1, keepdim=True).clamp_min(1) - 1).squeeze(1)
    outside = neighbours[last, tags[:, 0]] + neighbours[ends, last]
    score: Tensor = (own * mask_BW).sum(dim=1) + between.sum(dim=1) + outside
    return score


def log_partition(emissions_BWC: Tensor, neighbours: Tensor, mask_BW: Tensor) -> Tensor:
    """Return the logarithm (B,) of the sum over all chains of the exponential of their scores (forward algorithm)."""
    inner = neighbours[:-1, :-1]
    sums = neighbours[-1, :-1] + emissions_BWC[:, 0]
    for word in range(1, emissions_BWC.shape[1]):
        longer = (sums.unsqueeze(2) + inner).logsumexp(dim=1) + emissions_BWC[:, word]
        sums = torch.where(mask_BW[:, word, None], longer, sums)
    return (sums + neighbours[:-1, -1]).logsumexp(dim=1)


def best_chain(emissions_BWC: Tensor, neighbours: Tensor, mask_BW: Tensor) -> Tensor:
    """Return the chain (B, W) of the highest score (Viterbi); 0 at padding."""
    inner = neighbours[:-1, :-1]
    best = neighbours[-1, :-1] + emissions_BWC[:, 0]
    steps: list[Tensor] = []
    stay = torch.arange(best.shape[1], device=best.device).expand_as(best)
    for word in range(1, emissions_BWC.shape[1]):
        longer, before = (best.unsqueeze(2) + inner).max(dim=1)
        inside = mask_BW[:, word, None]
        best = torch.where(inside, longer + emissions_BWC[:, word], best)
        steps.append(torch.where(inside, before, stay))
    tag = (best + neighbours[:-1, -1]).argmax(dim=1, keepdim=True)
    chain = [tag]
    for before in reversed(steps):
        tag = before.gather(1, tag)
        chain.append(tag)
    return torch.cat(chain[::-1], dim=1).masked_fill(~mask_BW, 0)
