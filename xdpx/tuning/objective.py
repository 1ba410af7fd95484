"""The score of a trial: the mean over its runs (folds and seeds) after equal numbers of samples, from their logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from xdpx.metrics.intervals import mean_interval
from xdpx.reports.run_logs import read_run
from xdpx.search.trials import Order, Result
from xdpx.training.status import read_status
from xdpx.tuning.stages import Outcome, Stage, ended_early

Curve = list[tuple[int, float]]
"""(samples seen, score) of each evaluation, oldest first."""


@dataclass(frozen=True)
class RunProgress:
    """The progress of one run of a trial.

    Attributes:
        samples: samples seen so far.
        curve: its major metric.
        over: whether it has ended, by its schedule or by a rule such as tolerance or min_lr.
        why: why it has ended, for people.
    """

    samples: int
    curve: Curve
    over: bool
    why: str = ""


def progress_of(stage: Stage) -> RunProgress:
    """Return the progress of the run of a stage, read from its folder, up to the end of the stage.

    The run may have been trained further, by x-train with the config of the trial.
    """
    values, status = stage.run.values, read_status(stage.folder)
    each = values["batch_size"] * values["update_freq"]
    logs = read_run(stage.folder, train=False)
    steps, scores = logs.valid["step"], logs.valid[f"valid_{values['major_metric']}"]
    curve = [(int(step) * each, float(score)) for step, score in zip(steps, scores, strict=True) if step <= stage.until]
    if status is None:
        return RunProgress(0, curve, over=False)
    within = status.step <= stage.until
    whole = status.status == "finished" and min(status.step, stage.until) >= status.total_steps
    return RunProgress(
        min(status.step, stage.until) * each, curve, over=whole or (within and ended_early(status)),
        why="all samples seen" if whole else status.reason,
    )  # fmt: skip


def result_of(order: Order, stages: Sequence[Stage], outcomes: Sequence[Outcome]) -> Result:
    """Return the result of an order whose stages have all ended."""
    failed = next((outcome for outcome in outcomes if outcome.kind == "failed"), None)
    parts = [progress_of(stage) for stage in stages]
    going = [part.samples for part in parts if not part.over]
    samples = min(going) if going else max(part.samples for part in parts)
    if failed is not None:
        return Result(order.number, samples, None, ended=True, note=failed.reason)
    curve = mean_curve(parts)
    if not curve or not math.isfinite(curve[-1][1]):
        problem = "its score is NaN" if curve else "it was never evaluated"
        return Result(order.number, samples, None, curve, ended=True, note=problem)
    over = all(part.over for part in parts)
    note = next((part.why for part in parts if part.over and part.why != "all samples seen"), "all samples seen")
    return Result(order.number, max(samples, curve[-1][0]), curve[-1][1], curve, ended=over, note=note if over else "")


def mean_curve(parts: Sequence[RunProgress]) -> Curve:
    """Return the mean curve of runs, at the samples where all have a score; one that has ended keeps its last score."""
    places = sorted({seen for part in parts for seen, _ in part.curve})
    found = []
    for place in places:
        scores = [_score_at(part, place) for part in parts]
        known = [score for score in scores if score is not None]
        if len(known) == len(parts):
            found.append((place, fmean(known)))
    return found


def _score_at(part: RunProgress, samples: int) -> float | None:
    exact = next((score for seen, score in part.curve if seen == samples), None)
    if exact is None and part.over and part.curve and part.curve[-1][0] < samples:
        return part.curve[-1][1]
    return exact


def interval_at(
    parts: Sequence[RunProgress], samples: int, *, folds: int = 1, metric: str = ""
) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval of the mean score at so many samples; None for fewer than two runs.

    Args:
        parts: the runs, fold after fold; each fold was trained with every seed.
        samples: samples seen by the runs at the scores.
        folds: number of folds. Runs of one fold share its rows, so each of several folds counts once, by its mean: if
            all runs counted, the interval of 5 folds with 5 seeds contained the true mean in only 57 of 100 trials.
        metric: the name of the score.
    """
    scores = [score for part in parts if (score := _score_at(part, samples)) is not None]
    if len(scores) < 2 or len(scores) < len(parts):
        return None
    scores_N = np.array(scores, np.float64)
    return mean_interval(scores_N if folds == 1 else scores_N.reshape(folds, -1).mean(1), metric=metric)
