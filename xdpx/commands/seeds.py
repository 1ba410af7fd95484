"""Statistics over runs that differ only in their seed: mean, confidence interval and deviation of their scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import first_few
from xdpx.config.loading import RUN_ONLY_KEYS
from xdpx.training.status import read_status

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
        scores_of_runs: the best score of each run.
        seeds: of the runs; None if unknown.
    """

    settings: Mapping[str, Any]
    folders: Sequence[str]
    metric: str
    scores_of_runs: NDArray[np.float64]
    seeds: Sequence[Any]

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """The score of each seed: a run that was repeated, or copied, says nothing about other seeds."""
        found: dict[object, list[float]] = {}
        for number, (seed, score) in enumerate(zip(self.seeds, self.scores_of_runs.tolist(), strict=True)):
            found.setdefault(("unknown", number) if seed is None else seed, []).append(score)
        return np.array([fmean(scores) for scores in found.values()])

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


def doubts(group: SeedGroup) -> Iterator[str]:
    """Yield a sentence for each seed with several runs, and for each run that has not come to its end."""
    for seed, count in Counter(seed for seed in group.seeds if seed is not None).items():
        if count > 1:
            same = [folder for folder, each in zip(group.folders, group.seeds, strict=True) if each == seed]
            yield f"seed {seed} has {count} runs with the same settings, which count as one: {', '.join(same)}"
    for folder in group.folders:
        status = read_status(folder)
        if status is None:
            continue
        stretch = status.until <= status.step < status.total_steps  # else a rule of its own, tolerance, ended it
        if status.status != "finished" or stretch:
            where = f"at step {status.step} of {status.total_steps}"
            yield f"{folder}: {status.status} {where}; its best score until then counts"


def other_rows(groups: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield a sentence for each file of data that x-prepro rebuilt between the runs; their scores do not compare."""
    found: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        for folder in group.folders:
            status = read_status(folder)
            for name, digest in ((status.data if status is not None else None) or {}).items():
                path = f"{group.settings.get('data_dir')}/{name}"
                found.setdefault(path, {}).setdefault(digest, []).append(folder)
    for path, folders in found.items():
        if len(folders) > 1:
            told = " and ".join(first_few(each, 3) for each in folders.values())
            yield f"{path} was rebuilt between runs, whose scores do not compare: {told}"


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
