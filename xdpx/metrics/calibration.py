"""Calibration of probabilities: of the rows predicted with a confidence of 80 %, 80 % should be right.

Letters: N rows, C classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.intervals import DRAWS, Z95, share_interval

BINS = 15
FEWEST = 25
"""Minimum average number of rows per bin; with fewer rows, fewer bins are used."""
COLDEST, HOTTEST = 0.01, 100.0
"""Bounds of a temperature."""


class Bin(NamedTuple):
    """A bin of rows with about the same confidence.

    Attributes:
        rows: number of rows.
        confidence: mean probability of the predicted class.
        right: share of rows predicted right.
        interval: 95 % confidence interval of that share.
    """

    rows: int
    confidence: float
    right: float
    interval: tuple[float, float]


class Reliability(NamedTuple):
    """How well probabilities are calibrated.

    Attributes:
        error: expected calibration error: the mean distance between confidence and share of right rows.
        by_chance: its mean for a perfectly calibrated model, on the same number of rows.
        most_by_chance: its 95 % quantile for such a model.
        debiased: root mean square distance, corrected for chance; 0 if chance explains all of it.
        too_sure: mean confidence minus share of right rows: above 0 is overconfident, below 0 underconfident.
        bins: of about equal numbers of rows, by confidence.
    """

    error: float
    by_chance: float
    most_by_chance: float
    debiased: float
    too_sure: float
    bins: list[Bin]


def reliability(confidence_N: NDArray[Any], right_N: NDArray[np.bool_], *, bins: int = BINS) -> Reliability:
    """Compare confidence and accuracy in bins of about equal numbers of rows.

    Args:
        confidence_N: probability of the prediction, in [0, 1].
        right_N: which rows are predicted right; N is 1 or more.
        bins: maximum number; fewer if there are few rows.

    Source: Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015
    (ECE, here with bins of equal mass); Bröcker and Smith, "Increasing the reliability of reliability diagrams",
    Weather and Forecasting 22 (2007) (what chance does); Kumar, Liang and Ma, "Verified uncertainty calibration",
    NeurIPS 2019, definition 5.1 (debiased).
    """
    order = np.argsort(confidence_N, kind="stable")
    confidence, right = confidence_N[order].astype(np.float64), right_N[order].astype(np.float64)
    count = max(1, min(bins, len(order) // FEWEST))
    first = np.unique(np.arange(count) * len(order) // count)
    sizes = np.diff(np.append(first, len(order)))
    means, shares = (np.add.reduceat(each, first) / sizes for each in (confidence, right))
    random = np.random.default_rng(0)
    drawn = random.random((DRAWS, len(order)), dtype=np.float32) < confidence if len(order) <= 10_000 else None
    if drawn is None:  # for so many rows the normal approximation of each bin is accurate
        spread = np.sqrt(np.add.reduceat(confidence * (1 - confidence), first)) / sizes
        chance = means + spread * random.standard_normal((DRAWS, len(sizes)))
    else:
        chance = np.add.reduceat(drawn.astype(np.float64), first, axis=1) / sizes
    weights = sizes / len(order)
    by_chance = (np.abs(chance - means) * weights).sum(axis=1)
    squares = (means - shares) ** 2 - shares * (1 - shares) / np.maximum(sizes - 1, 1)
    return Reliability(
        error=float((np.abs(means - shares) * weights).sum()),
        by_chance=float(by_chance.mean()),
        most_by_chance=float(np.quantile(by_chance, 0.95)),
        debiased=float(np.sqrt(max(0.0, (squares * weights).sum()))),
        too_sure=float(confidence.mean() - right.mean()),
        bins=[
            Bin(int(size), float(mean), float(share), share_interval(float(share), int(size)))
            for size, mean, share in zip(sizes, means, shares, strict=True)
        ],
    )


class Temperature(NamedTuple):
    """The divisor of logits, in [0.01, 100], and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


def fitted_temperature(log_prob_NC: NDArray[Any], target_N: NDArray[Any]) -> Temperature:
    """Return the temperature that minimises the negative log likelihood of the targets.

    The negative log likelihood is convex in 1 / temperature, so bisection finds the minimum. The interval is
    that of a maximum likelihood estimate of a model that may be wrong.

    Args:
        log_prob_NC: log probabilities or logits: a constant added to a row does not matter.
        target_N: the class of each row.

    Source: Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2; of the
    interval White, "Maximum likelihood estimation of misspecified models", Econometrica 50 (1982).
    """
    logits = log_prob_NC.astype(np.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    own = np.take_along_axis(logits, target_N[:, None].astype(np.int64), axis=1)[:, 0]

    def slope_and_curvature(inverse: float) -> tuple[NDArray[np.float64], float]:
        weights = np.exp(inverse * logits)
        weights /= weights.sum(axis=1, keepdims=True)
        mean = (weights * logits).sum(axis=1)
        return mean - own, float(((weights * logits**2).sum(axis=1) - mean**2).sum())

    low, high = 1.0 / HOTTEST, 1.0 / COLDEST
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if slope_and_curvature(middle)[0].sum() > 0 else (middle, high)
    inverse = float(np.sqrt(low * high))
    slopes, curvature = slope_and_curvature(inverse)
    reach = Z95 * float(np.sqrt((slopes**2).sum())) / curvature if curvature > 0 else float("inf")
    ends = (1.0 / min(inverse + reach, 1.0 / COLDEST), 1.0 / max(inverse - reach, 1.0 / HOTTEST))
    return Temperature(1.0 / inverse, *ends)


def sharpened(prob_NC: NDArray[Any], temperature: float) -> NDArray[np.float64]:
    """Return the probabilities after dividing logits by a temperature; above 1 they are less confident."""
    logits = np.log(np.maximum(prob_NC.astype(np.float64), np.finfo(np.float32).tiny)) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return found
