"""Significance tests: is one model better than another on the same rows, or is the difference due to chance?

Letters: N rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.intervals import DRAWS, share_interval
from xdpx.metrics.resampling import Score, bootstrap, of_all, percentile_interval

Test = Literal["McNemar, mid-p", "paired bootstrap"]


class Difference(NamedTuple):
    """The difference between two scores on the same rows.

    Attributes:
        first, second: the scores.
        low, high: ends of the 95 % interval of second - first.
        p: p value under the null hypothesis that both models are equally good.
        test: that gave p and the interval.
    """

    first: float
    second: float
    low: float
    high: float
    p: float
    test: Test


def compare_shares(first_N: NDArray[np.bool_], second_N: NDArray[np.bool_]) -> Difference:
    """Compare the accuracy of two models.

    Args:
        first_N: which rows the first has right; N is 1 or more.
        second_N: which the second has.
    """
    only_first, only_second = int((first_N & ~second_N).sum()), int((second_N & ~first_N).sum())
    both = int((first_N & second_N).sum())
    low, high = paired_share_interval(both, only_first, only_second, len(first_N))
    share, other = float(first_N.mean()), float(second_N.mean())
    return Difference(share, other, low, high, mcnemar(only_first, only_second), "McNemar, mid-p")


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided mid-p value of rows that one model alone has right; 1 where there are none.

    It is the exact binomial test, but counts what was seen half: the exact one rejects too seldom.

    Args:
        only_first: rows that the first alone has right.
        only_second: rows that the second alone has right.

    Source: Fagerland, Lydersen and Laake, "The McNemar test for binary matched-pairs data: mid-p and asymptotic are
    better than exact conditional", BMC Medical Research Methodology 13:91 (2013), equation 5.
    """
    total, fewer = only_first + only_second, min(only_first, only_second)
    if only_first == only_second:
        return 1.0
    counts = np.arange(1, fewer + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(total - counts + 1) - np.log(counts))]) - total * math.log(2.0)
    probabilities = np.exp(logs)
    return min(1.0, float(2.0 * probabilities.sum() - probabilities[-1]))


def paired_share_interval(both: int, only_first: int, only_second: int, total: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the second share minus the first.

    Args:
        both: rows that both have right.
        only_first: rows that the first alone has right.
        only_second: rows that the second alone has right.
        total: all rows, 1 or more.

    Source: Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired
    data", Statistics in Medicine 17 (1998), method 10.
    """
    neither = total - both - only_first - only_second
    second, first = (both + only_second) / total, (both + only_first) / total
    (low2, high2), (low1, high1) = share_interval(second, total), share_interval(first, total)
    product = (both + only_second) * (only_first + neither) * (both + only_first) * (only_second + neither)
    covariance = float(both * neither - only_first * only_second)
    if covariance > 0:
        covariance = max(covariance - total / 2, 0.0)
    phi = covariance / math.sqrt(product) if product else 0.0
    down = _reach(second - low2, high1 - first, phi)
    up = _reach(high2 - second, first - low1, phi)
    return max(-1.0, second - first - down), min(1.0, second - first + up)


def _reach(own: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, own**2 - 2.0 * phi * own * other + other**2))


def compare_scores(
    first: Score, second: Score, num_rows: int, *, groups_N: NDArray[np.int64] | None = None, draws: int = DRAWS
) -> dict[str, Difference]:
    """Compare every score that both have by the paired bootstrap, drawing the same rows for both.

    The p value is twice the share of draws in which the difference has the other sign, or none; one draw is added, so
    that it is never 0. Of few rows (or groups) no draw shows the other sign: it is never below that of the exact test
    of signs, 2 / 2^N, so that one row proves nothing.

    Args:
        first: returns the scores of some rows.
        second: the same for the other model.
        num_rows: N, 1 or more.
        groups_N: as for `bootstrap`.
        draws: how often the rows are drawn again.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 15.4; Davison and Hinkley, 1997,
    equation 4.11.
    """

    def both(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Mapping[str, float]:
        one, other = first(rows, groups), second(rows, groups)
        return {name: other[name] - one[name] for name in one if name in other}

    here, there = (of_all(score, num_rows, groups_N) for score in (first, second))
    counted = num_rows if groups_N is None else len(np.unique(groups_N))
    found = {}
    for name, values in bootstrap(both, num_rows, groups_N=groups_N, draws=draws).items():
        low, high = percentile_interval(values, counted)
        found[name] = Difference(here[name], there[name], low, high, _chance(values, counted), "paired bootstrap")
    return found


def _chance(values_D: NDArray[np.float64], counted: int) -> float:
    known = values_D[np.isfinite(values_D)]
    fewer = min(int((known <= 0).sum()), int((known >= 0).sum()))
    if not len(known):
        return float("nan")
    return min(1.0, max(2.0 * (fewer + 1) / (len(known) + 1), 2.0 ** (1 - counted)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values of several comparisons, adjusted so that all can be compared with one significance level.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
