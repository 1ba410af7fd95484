"""When to say that rounding undoes the updates of weights in 16 bits, and in which words; for both engines.

A number in bfloat16 has eight significant bits: an update of less than 1/512 of it is lost, and so is each after it.
No error says so, and the loss falls a little all the same, by the few weights that move.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

UPDATES = 100
"""Number of updates, with a learning rate above 0, after which the weights are compared with those before the first. A
schedule may begin with rates that are too small to tell earlier."""

WEIGHTS, NUMBERS = 8, 1024
"""How many weights are compared, the largest ones, and how many numbers of each, evenly spaced. Biases do not count:
half of all weights, they begin with zeros, which any update changes. Nor does the largest weight alone, an embedding of
which few rows occur."""


def stride_of(size: int) -> int:
    """Return the distance between the numbers of a weight that are compared, at most `NUMBERS` of `size`."""
    return max(1, -(-size // NUMBERS))


def said_of(unchanged: Sequence[float], *, rates: str, kind: object, remedy: str) -> str:
    """Return what to warn of; '' if most numbers of the median weight have changed.

    Args:
        unchanged: for each weight, the share of its numbers that are as before, in [0, 1].
        rates: with which learning rates the updates were taken.
        kind: dtype of the weights.
        remedy: what to set instead, as a sentence without its end.
    """
    share = median(unchanged)
    if share <= 0.5:
        return ""
    return (
        f"rounding undoes updates: after {UPDATES} of them with {rates}, {share:.0%} of the numbers are as before in "
        f"the median of the largest {str(kind).removeprefix('torch.')} weights. {remedy}, or raise the learning rate."
    )
