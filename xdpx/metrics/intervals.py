"""Confidence intervals: how far a score may be from its value on unlimited data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from xdpx.utils.metric_names import range_of

Z95 = 1.959964
"""95 % of a normal distribution lie within this number of standard deviations."""
DRAWS = 1000
"""Number of bootstrap resamples."""
MOST_INVALID = 0.05
"""Maximum share of draws without a value, e.g. a correlation of constant rows."""
T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student_t(degrees: int) -> float:
    """Return the number of standard errors that contain 95 % of Student's t distribution, for 1 or more degrees."""
    if degrees <= len(T975):
        return T975[degrees - 1]
    return Z95 + (Z95**3 + Z95) / (4 * degrees)  # Fisher, 1926: within 0.0006 from 31 degrees on


def share_interval(share: float, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion, such as accuracy; never outside [0, 1].

    Args:
        share: in [0, 1].
        total: of the rows it was counted on, 1 or more.

    Source: Wilson, Journal of the American Statistical Association 22 (1927), the score interval. It is valid for
    few rows or shares near 0 and 1, where the normal approximation is far too narrow.
    """
    spread = Z95**2 / total
    middle = share + spread / 2
    reach = Z95 * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))


def mean_interval(values_N: NDArray[np.float64], *, metric: str = "") -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean; nan for fewer than two values.

    Args:
        values_N: the values.
        metric: the name of what they are; of a metric that never leaves a range, neither does the interval.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908).
    """
    if len(values_N) < 2:
        return float("nan"), float("nan")
    reach = student_t(len(values_N) - 1) * float(values_N.std(ddof=1)) / math.sqrt(len(values_N))
    mean = float(values_N.mean())
    low, high = range_of(metric)
    if values_N.min() < low or values_N.max() > high:  # another scale than the name promises
        return mean - reach, mean + reach
    return max(low, mean - reach), min(high, mean + reach)
