"""What every door decides alike: when something is due, and which of two scores is better."""

from __future__ import annotations

from math import isnan

SKIPPED_AT_MOST = 100
"""Updates left out one after another, because something was not finite, before a training ends as a failure: a loss
scale that begins at 2**16 has found its place after some twenty."""


def due(number: int, interval: float | None) -> bool:
    """Tell whether something that is done every `interval` updates is due after update `number`.

    Args:
        number: the update, from 1.
        interval: in updates; None, 0 and below stand for never.
    """
    return interval is not None and interval > 0 and number % interval == 0


def is_better(score: float, best: float | None, *, ascending: bool, by: float = 0.0) -> bool:
    """Tell whether `score` is better than the best one so far. NaN never is, nor is a tie.

    Args:
        score: of the metric that decides.
        best: the best one so far; None when there is none yet.
        ascending: whether higher is better.
        by: how much better it must be to count.
    """
    if best is None:
        return not isnan(score)
    return (score - best if ascending else best - score) > by
