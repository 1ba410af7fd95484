"""Statistics over runs that differ only in their seed: mean, confidence interval and deviation of their scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.loading import RUN_ONLY_KEYS

if TYPE_CHECKING:
    from xdpx.reports.run_logs import RunLogs

NOT_COMPARED = RUN_ONLY_KEYS | {"seed", "__version__"}
"""Settings that may differ within a group."""


@dataclass(frozen=True)
class SeedGroup:
    """Runs with the same settings.

    Attributes:
        settings: common to the runs, without those that may differ.
        folders: of the runs.
        metric: the major metric.
        scores: the best score of each run.
        seeds: of the runs.
    """

    settings: Mapping[str, Any]
    folders: Sequence[str]
    metric: str
    scores: NDArray[np.float64]
    seeds: Sequence[Any]

    @property
    def mean(self) -> float:
        """Mean of the scores."""
        return float(self.scores.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation of the scores between seeds; NaN for one run."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % confidence interval of the mean; NaN for one run."""
        from xdpx.metrics import mean_interval

        return mean_interval(self.scores, metric=self.metric)


def groups_of(runs: Sequence[RunLogs]) -> list[SeedGroup]:
    """Return the runs with a score, grouped by their settings, in the order of the first run of each group."""
    found: dict[str, list[RunLogs]] = {}
    for run in runs:
        if run.best_row is not None:
            found.setdefault(json.dumps(_settings(run), sort_keys=True, default=str), []).append(run)
    return [_group(members) for members in found.values()]


def _settings(run: RunLogs) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if key not in NOT_COMPARED}


def _group(runs: Sequence[RunLogs]) -> SeedGroup:
    scores = np.array([float(run.major_scores[run.best_row or 0]) for run in runs])
    metric = str(runs[0].settings.get("major_metric", "best_score"))
    folders, seeds = [run.folder for run in runs], [run.settings.get("seed") for run in runs]
    return SeedGroup(_settings(runs[0]), folders, metric, scores, seeds)


def difference(first: SeedGroup, second: SeedGroup) -> dict[str, float]:
    """Return how far the mean of the second group is above that of the first, with its 95 % confidence interval.

    Source: Welch, "The generalization of 'Student's' problem when several different population variances are involved",
    Biometrika 34 (1947).
    """
    from xdpx.metrics.intervals import student_t

    parts = [float(group.scores.var(ddof=1)) / len(group.scores) for group in (first, second)]
    error, gap = float(np.sqrt(sum(parts))), second.mean - first.mean
    shares = [part**2 / (len(group.scores) - 1) for part, group in zip(parts, (first, second), strict=True)]
    degrees = max(1, int(sum(parts) ** 2 / sum(shares))) if sum(shares) else 1
    reach = student_t(degrees) * error
    return {"difference": gap, "low": gap - reach, "high": gap + reach}


def differing(groups: Sequence[SeedGroup]) -> list[str]:
    """Return the settings in which the groups differ."""
    keys = dict.fromkeys(key for group in groups for key in group.settings)
    return [key for key in keys if any(group.settings.get(key) != groups[0].settings.get(key) for group in groups)]


def row_of(group: SeedGroup, keys: Sequence[str]) -> dict[str, Any]:
    """Return a row of a table: the settings in which groups differ, and the statistics of the scores."""
    low, high = group.interval
    several = len(group.scores) > 1
    return {
        **{key: _short(group.settings.get(key)) for key in keys},
        "runs": len(group.scores),
        "metric": group.metric,
        "mean": group.mean,
        "95 % interval": f"{low:.4g} to {high:.4g}" if several else "one seed",
        "deviation": group.deviation if several else None,
        "lowest": float(group.scores.min()),
        "highest": float(group.scores.max()),
    }


def _short(value: object) -> object:
    return value if isinstance(value, int | float | str) or value is None else json.dumps(value, default=str)
