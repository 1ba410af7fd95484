"""Decision thresholds: the probability from which a class is predicted, chosen on labelled data."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.ranking import counts_above

Goal = Literal["f1", "precision"]


class Cut(NamedTuple):
    """A threshold, with its F measure, precision and recall. Rows at or above the threshold are positive."""

    threshold: float
    f1: float
    precision: float
    recall: float


def best_cut(
    positive_N: NDArray[np.bool_],
    score_N: NDArray[Any],
    *,
    beta: float = 1.0,
    goal: Goal = "f1",
    lowest: float = -np.inf,
    highest: float = np.inf,
    num_wanted: int | None = None,
    gap: float = 0.5,
) -> Cut:
    """Find the threshold with the best F measure (or precision), trying every score that occurs.

    The threshold lies between the last score taken and the next below it, so that rounding the probabilities changes
    nothing; among equally good ones the highest is taken.

    Args:
        positive_N: which rows are positive.
        score_N: probabilities or other scores.
        beta: recall counts `beta` times as much as precision in the F measure.
        goal: what is to be largest; precision looks at the F measure among equals.
        lowest: least value of the threshold.
        highest: greatest value of the threshold.
        num_wanted: how many rows there are to be found, by default the positive ones.
        gap: where between the two scores the threshold lies: in (0, 1], 1 at the last score taken.

    Returns:
        The cut; all nan where no row is positive, a score is nan, or nothing lies within the bounds.
    """
    nothing = Cut(*[float("nan")] * 4)
    if not positive_N.any() or np.isnan(score_N).any():
        return nothing
    hits, above = counts_above(positive_N, score_N)
    wanted = hits[-1] if num_wanted is None else num_wanted
    values = -np.unique(-score_N.astype(np.float64))
    floors = np.append(values[1:], -np.inf)
    between = np.append(values[1:] + gap * (values[:-1] - values[1:]), values[-1])
    cuts = np.clip(np.where(between > floors, between, values), lowest, highest)
    allowed = np.flatnonzero((floors < cuts) & (cuts <= values))
    if not len(allowed):
        return nothing
    precision, recall = hits / above, hits / wanted
    measure = (1 + beta**2) * hits / (above + beta**2 * wanted)
    first, second = (measure, precision) if goal == "f1" else (precision, measure)
    best = allowed[np.lexsort((-second[allowed], -first[allowed]))[0]]
    return Cut(float(cuts[best]), float(measure[best]), float(precision[best]), float(recall[best]))
