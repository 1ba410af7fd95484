"""The bootstrap: confidence intervals of any score, by resampling the rows of a split many times.

Letters: N rows, D draws, C classes, K cells of a table that are not empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.classes import Counts, precision_recall_f1
from xdpx.metrics.intervals import DRAWS, MOST_INVALID, share_interval, student_t

Score = Callable[[NDArray[np.int64], NDArray[np.int64]], Mapping[str, float]]
"""Returns scores by name. It is given the numbers of the rows, of which some may come several times, and with each the
number of its group within this draw: a query that is drawn twice is two queries."""

MOST_ROWS = 20_000
"""Of a larger split only so many rows are drawn at a time, and what they deviate is scaled down."""
MOST_COUNTS = 1_000_000
"""Draws times cells of a table that are computed at once."""


def bootstrap(
    score: Score, num_rows: int, *, groups_N: NDArray[np.int64] | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of a split that is drawn again, with replacement, by name, (D,); the same ones every time.

    Args:
        score: of some rows.
        num_rows: N, 1 or more.
        groups_N: rows with the same number are drawn together: those of a query, or one that was copied. None: every
            row by itself.
        draws: D.
        seed: of the random numbers.

    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979; of the groups Davison and Hinkley,
    "Bootstrap Methods and their Application", 1997, section 3.8; of the fewer rows of a large split Bickel, Götze and
    van Zwet, "Resampling fewer than n observations", 1997.
    """
    members = _Members(groups_N, num_rows)
    drawn = min(members.total, max(1, members.total * MOST_ROWS // num_rows))
    random = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(draws):
        for name, value in score(*members.of(random.integers(0, members.total, drawn))).items():
            found.setdefault(name, []).append(float(value))
    values = {name: np.array(each, np.float64) for name, each in found.items() if len(each) == draws}
    if drawn == members.total:
        return values
    whole, total = of_all(score, num_rows, groups_N), members.total
    return {name: whole[name] + (each - whole[name]) * math.sqrt(drawn / total) for name, each in values.items()}


def percentile_interval(values_D: NDArray[np.float64], num_rows: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a score; nan where too many draws have no value.

    Of few rows the usual percentiles are too near: they are moved outwards as far as Student's t is wider than the
    normal distribution, and the spread of so many rows wider than that of the draws.

    Args:
        values_D: the score of each draw.
        num_rows: of the split (or groups, where those were drawn).

    Source: Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69 (2015), 5.2.
    """
    known = values_D[np.isfinite(values_D)]
    if not len(known) or len(known) < (1 - MOST_INVALID) * len(values_D) or num_rows < 2:
        return float("nan"), float("nan")
    reach = math.sqrt(num_rows / (num_rows - 1)) * student_t(num_rows - 1)
    tail = 0.5 * math.erfc(reach / math.sqrt(2.0))
    low, high = np.quantile(known, [tail, 1.0 - tail]).tolist()
    return low, high


def bounded_interval(
    value: float, values_D: NDArray[np.float64], evidence: float, *, lowest: float = 0.0
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a score between `lowest` and 1; nan where most draws have no value.

    On the scale of the logit a score near an end spreads evenly to both sides, and its interval never passes the end.
    (From -1 to 1 that is Fisher's z of a correlation, twice.) The spread is that of the draws; of few rows it is known
    badly itself, which Student's t makes up for. Where the score is at an end, draws cannot hold the errors that never
    came up: then the interval is that of a share.

    Args:
        value: of all rows.
        values_D: the score of each draw.
        evidence: of how many rows the score is worth, as `evidence_of` gives it, above 1.
        lowest: what the score can be at least: 0 or -1.

    Source: Agresti, "Categorical Data Analysis", 2013, section 3.1.6, for the interval on the logit scale; Takahashi et
    al., "Confidence interval for micro-averaged F1 and macro-averaged F1 scores", Applied Intelligence 52 (2022), whose
    variance of macro F1 the draws agree with. In simulations (docs/scores.md) it covers better than percentiles.
    """
    known = values_D[np.isfinite(values_D)]
    if 2 * len(known) <= len(values_D) or not lowest <= value <= 1.0 or evidence <= 1.0:
        return float("nan"), float("nan")
    share, size = (value - lowest) / (1.0 - lowest), 1.0 - lowest
    spread = float(known.std(ddof=1)) / size
    if share in {0.0, 1.0}:
        low, high = share_interval(share, max(1, round(evidence)))
    else:
        middle, slope = math.log(share / (1.0 - share)), share * (1.0 - share)
        reach = student_t(max(1, round(evidence) - 1)) * math.sqrt(evidence / (evidence - 1.0)) * spread / slope
        low, high = (float(0.5 + 0.5 * np.tanh(end / 2.0)) for end in (middle - reach, middle + reach))
    return lowest + size * low, lowest + size * high


def evidence_of(classes_N: NDArray[Any]) -> float:
    """Return how many rows of equally frequent classes tell as much of a mean over classes: C^2 / sum of 1 / rows.

    With ten rows of one class and ninety of the other it is 36, for the mean hangs on the ten.

    Args:
        classes_N: the class of each row.
    """
    _, rows_C = np.unique(classes_N, return_counts=True)
    return _harmonic(rows_C)


def macro_f1_interval(
    table_CC: Counts, *, negative_classes: Sequence[int] = (), draws: int = DRAWS
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of macro F1 by the bootstrap: rows are drawn again, the same way every time.

    Drawing rows is drawing cells of the table, so that many rows cost no more than few.

    Args:
        table_CC: rows counted by (target, prediction).
        negative_classes: left out of the average.
        draws: how often the split is drawn again.

    Source: as `bounded_interval`.
    """
    total = int(table_CC.sum())
    if not total:
        return float("nan"), float("nan")
    cells = np.flatnonzero(table_CC)
    targets, predictions = np.divmod(cells, len(table_CC))
    by_target, by_prediction = (_summing(each, len(table_CC)) for each in (targets, predictions))
    shares, random = table_CC.ravel()[cells] / total, np.random.default_rng(0)
    counted = np.isin(np.arange(len(table_CC)), negative_classes, invert=True)
    at_once = max(1, MOST_COUNTS // len(cells))
    scores = list[NDArray[np.float64]]()
    for begin in range(0, draws, at_once):
        drawn_DK = random.multinomial(total, shares, size=min(at_once, draws - begin))
        hits_DC, rows_DC = by_target(drawn_DK * (targets == predictions)), by_target(drawn_DK) + by_prediction(drawn_DK)
        present_DC = counted & (rows_DC > 0)
        f1_DC = np.divide(2 * hits_DC, rows_DC, out=np.zeros(rows_DC.shape), where=present_DC)
        scores.append(f1_DC.sum(axis=1) / np.maximum(1, present_DC.sum(axis=1)))
    value = precision_recall_f1(table_CC, average="macro", negative_classes=negative_classes)[2]
    return bounded_interval(value, np.concatenate(scores), _harmonic(table_CC.sum(axis=1)))


def of_all(score: Score, num_rows: int, groups_N: NDArray[np.int64] | None = None) -> Mapping[str, float]:
    """Return the scores of all rows, without resampling."""
    rows = np.arange(num_rows)
    return score(rows, rows if groups_N is None else groups_N)


def _summing(classes_K: NDArray[np.int64], num_classes: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return a function that sums counts of cells (D, K) over the cells of each class: (D, C)."""
    order = np.argsort(classes_K, kind="stable")
    present, begins = np.unique(classes_K[order], return_index=True)

    def summed(counts_DK: NDArray[np.int64]) -> NDArray[np.int64]:
        summed_DC = np.zeros((len(counts_DK), num_classes), np.int64)
        summed_DC[:, present] = np.add.reduceat(counts_DK[:, order], begins, axis=1)
        return summed_DC

    return summed


def _harmonic(rows_C: NDArray[Any]) -> float:
    known_C = rows_C[rows_C > 0]
    return float(len(known_C) ** 2 / np.sum(1.0 / known_C)) if len(known_C) else 0.0


class _Members:
    """The rows of each group; without groups, each row is its own."""

    def __init__(self, groups_N: NDArray[np.int64] | None, num_rows: int) -> None:
        self.total = num_rows
        self._order: NDArray[np.int64] | None = None
        if groups_N is not None:
            self._order = np.argsort(groups_N, kind="stable")
            _, self._first, self._sizes = np.unique(groups_N[self._order], return_index=True, return_counts=True)
            self.total = len(self._sizes)

    def of(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the chosen groups, concatenated, and for each row the index of its group in `chosen`."""
        if self._order is None:
            return chosen, np.arange(len(chosen))
        sizes = self._sizes[chosen]
        places = np.repeat(np.arange(len(chosen)), sizes)
        begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
        within = np.arange(len(places)) - begins
        return self._order[self._first[chosen][places] + within], places
