"""Regression metrics: errors and correlations. All are nan if undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.metrics.ranking import middle_ranks


def pearson(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the linear correlation, in [-1, 1]; nan for fewer than two rows, or if one is constant."""
    target, score = target_N.astype(np.float64), score_N.astype(np.float64)
    if len(target) < 2 or (target == target[0]).all() or (score == score[0]).all():
        return float("nan")  # of a constant the rounded mean may leave a spread above 0
    target, score = target - target.mean(), score - score.mean()
    spread = float(np.sqrt((target @ target) * (score @ score)))
    return float(np.clip(target @ score / spread, -1.0, 1.0)) if spread else float("nan")


def spearman(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the correlation of the ranks, averaged for ties; nan as for `pearson`, or if any value is nan."""
    if np.isnan(target_N).any() or np.isnan(score_N).any():
        return float("nan")
    return pearson(middle_ranks(target_N), middle_ranks(score_N))


def mean_squared_error(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the mean square of the difference; nan without rows."""
    difference = target_N.astype(np.float64) - score_N
    return float(np.mean(difference**2)) if len(difference) else float("nan")


def mean_absolute_error(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the mean absolute difference; nan without rows."""
    difference = target_N.astype(np.float64) - score_N
    return float(np.mean(np.abs(difference))) if len(difference) else float("nan")
