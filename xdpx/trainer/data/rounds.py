"""A round is one batch of every rank.

Batches of a round are neighbours in the order of the epoch: with batches of 2 on two ranks, samples 0 1 2 3 are a
round, 0 1 for rank 0 and 2 3 for rank 1. The last round of an epoch is filled up with samples from its start, so that
no rank has to wait for another that has run out.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Literal, TypeVar

Sample = TypeVar("Sample")

Fill = Literal["all", "even", "least", "none"]
"""How the last round is completed, if it is not whole, unless it is dropped.

* "all": with samples from the start, so that all ranks have equally many batches of the same size.
* "even": it is split evenly, with a few samples from the start if it is not divisible; batches are shorter.
* "least": only a rank that would have no sample gets one from the start.
* "none": some ranks have a batch less.
"""


def split_round(
    round_: list[Sample], beginning: list[Sample], fill: Fill, *, share: int, size: int
) -> list[list[Sample]]:
    """Return the batches of a round by rank, completed from the beginning; some are empty if it is not completed.

    Args:
        round_: its samples.
        beginning: the first samples of the epoch.
        fill: how it is completed.
        share: samples of a batch.
        size: number of ranks.
    """
    if fill in ("all", "even"):
        round_ = round_ + list(islice(cycle(beginning), share * size - len(round_)))
    spare = beginning[:1] if fill == "least" else []
    return [round_[rank * share : (rank + 1) * share] or spare for rank in range(size)]
