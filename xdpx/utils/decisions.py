"""Decisions that all doors share: when something is due, which of two scores is better, which words mean true."""

from __future__ import annotations

from math import ceil, floor, isnan

SKIPPED_AT_MOST = 100
"""Consecutive updates that may be skipped because of NaN or infinity before training fails. A loss scale that starts at
2**16 settles after about twenty."""

TRUE_WORDS = frozenset({"yes", "true", "t", "y", "1", "on"})
"""The words for true in environment variables and in arguments that are texts; in lower case."""


def due(number: int, interval: float | None) -> bool:
    """Return whether an action with an interval of `interval` updates is due after update `number`.

    Args:
        number: the update, from 1.
        interval: in updates; None, 0 and negative numbers mean never.
    """
    return interval is not None and interval > 0 and number % interval == 0


def updates_of(share: float, total: int) -> int:
    """Return the number of updates in a share of a training, rounded up, at least one: 7 for 0.07 of 100."""
    return min(max(1, ceil(share * total - 1e-9)), total)  # 0.07 * 100 is a little more than 7


def slow_average(decay: float, updates: int) -> str:
    """Return a warning if an exponential average of weights hardly leaves the first ones in so many updates, or ""."""
    share = decay**updates if decay < 1.0 else 0.0
    if share < 0.1:
        return ""
    enough = floor(1e4 * 0.01 ** (1 / max(updates, 1))) / 1e4
    return (
        f"ema_decay: is {decay}, but there are {updates:,} updates: {share:.0%} of the averaged weights at the end, "
        f"which are scored and saved, will come from the initial ones. Use a smaller one, such as {enough:g}."
    )


def is_better(score: float, best: float | None, *, ascending: bool, by: float = 0.0) -> bool:
    """Return whether `score` is better than the best one so far. NaN and ties are not.

    Args:
        score: of the metric that decides.
        best: the best one so far; None if there is none yet.
        ascending: whether higher is better.
        by: required margin.
    """
    if best is None:
        return not isnan(score)
    return (score - best if ascending else best - score) > by
