"""Tagging of words, with a linear-chain CRF. B rows, T tokens, W words, C tags, D width.

A mask (B, W) is true at words, which come first. Transition scores are one matrix (C + 1, C + 1): entry [i, j] for
tag j after tag i; row C for the start of a chain, column C for its end.

Source: Lafferty et al., "Conditional Random Fields", ICML 2001, section 3; on an encoder: Lample et al.,
"Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TagScores(NamedTuple):
    """Scores of tags.

    Attributes:
        emissions: of each word by itself, (B, W, C).
        neighbours: transition scores, (C + 1, C + 1) as in `chain_scores`; None without a CRF.
    """

    emissions: Tensor
    neighbours: Tensor | None


def of_words(hidden_BTD: Tensor, word_starts_BW: Tensor) -> Tensor:
    """Return (B, W, D): the state of the first token of each word."""
    return hidden_BTD.gather(1, word_starts_BW.unsqueeze(-1).expand(-1, -1, hidden_BTD.shape[-1]))


def chain_scores(emissions_BWC: Tensor, neighbours: Tensor, tags_BW: Tensor, mask_BW: Tensor) -> Tensor:
    """Return the score (B,) of one chain of tags for each row; tags at padding are ignored."""
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
    """Return the chain (B, W) with the highest score (Viterbi); 0 at padding."""
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
