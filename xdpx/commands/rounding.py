"""Measure what rounding to 8 bits costs and gains: score on labelled rows, and time row by row, before and after."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from itertools import islice
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.plan import InferenceParameters, find_input, make_plan
from xdpx.utils.metric_names import range_of

if TYPE_CHECKING:
    from xdpx.inference.exporting import Judge, Trial
    from xdpx.inference.formats import Network
    from xdpx.inference.plan import Input
    from xdpx.inference.predictor import Predictor

TIMED = 60
"""Number of real rows timed, each with both networks alternately."""
REMEDY = "Export it in full precision, try the other format, or allow more: most_lost."


def judge_rounding(rows: str | None, most_lost: float, source: str) -> Judge:
    """Return a function that scores and times an export.

    Args:
        rows: labelled rows; None for the valid_subset of training.
        most_lost: points (hundredths) of major_metric, or percent of one without bounds, such as a loss; an export that
            loses more is refused.
        source: the config, for messages.
    """

    def judge(trial: Trial) -> list[str]:
        from xdpx.inference.predictor import Predictor

        values = trial.predictor.plan.train.values
        metric, on = str(values["major_metric"]), rows or str(values["valid_subset"])
        labelled = find_input(on, trial.predictor.plan, "rows", source)
        again = Predictor(make_plan(InferenceParameters(save_dir=trial.folder), source))
        before, after = scored(trial.predictor, labelled)[metric], scored(again, labelled)[metric]
        unit = unit_of(metric)
        lost = lost_of(before, after, unit=unit, ascending=values["ascending_metric"])
        told = (
            f"{0 - lost:+.2f} points" if unit == "points" else f"{abs(lost):.2f} % {'worse' if lost > 0 else 'better'}"
        )
        slow, fast = seconds_of(trial, labelled)
        trial.facts["rounding"] = {
            "rows": on, "metric": metric, "before": before, "after": after, "milliseconds_before": 1000 * slow,
            "milliseconds_after": 1000 * fast,
        }  # fmt: skip
        if not lost <= most_lost:
            problem = f"takes {metric} on {on} from {before:.4f} to {after:.4f}: {lost:.2f} {unit} lost."
            raise ConfigError(source, [Fault("quantise", problem, REMEDY)])
        return [
            f"  {metric} on {on}: {before:.4f} before, {after:.4f} after rounding ({told})",
            f"  a row of {on}, one by one on one thread: {1000 * slow:.2f} ms of CPU before, {1000 * fast:.2f} after "
            f"({slow / fast:.1f} times as fast)",
        ]

    return judge


def unit_of(metric: str) -> str:
    """Return the unit in which a loss of a metric is judged: points, or `%` of one without bounds, such as a loss."""
    return "points" if math.isfinite(range_of(metric)[1]) else "%"


def lost_of(before: float, after: float, *, unit: str, ascending: bool) -> float:
    """Return by how much a metric became worse, in points (hundredths) or percent of its value before."""
    lost = 100 * (before - after if ascending else after - before)
    if unit == "points" or lost == 0:
        return lost
    return lost / abs(before) if before else math.copysign(math.inf, lost)


def scored(predictor: Predictor, source: Input) -> dict[str, float]:
    """Return the metrics of labelled rows."""
    from xdpx.tasks.scoring import score

    batches = predictor.scored_batches(source)
    found: dict[str, float] = score(predictor.engine, predictor.state, batches, predictor.task.loss).metrics
    return found


def seconds_of(trial: Trial, source: Input) -> tuple[float, float]:
    """Return the median CPU seconds per row in full precision and rounded, in the same format."""
    from xdpx.inference.exported import open_network

    exportable, rows = trial.exportable, single_rows(trial.predictor, trial.exportable.inputs, source)
    with TemporaryDirectory() as folder:
        facts = {**trial.facts, "of_format": type(trial.kind)().write(exportable, folder)}
        full = open_network(folder, facts, threads=1, source=folder)
        rounded = open_network(trial.folder, trial.facts, threads=1, source=trial.folder)
        slow, fast = medians([full, rounded], rows)
        return slow, fast


def single_rows(predictor: Predictor, inputs: Sequence[str], source: Input) -> list[dict[str, Any]]:
    """Return the network inputs, by name, of real rows of all lengths, one row each."""
    from xdpx.datasets.evaluation_data import EvaluationData

    chunk = next(predictor.chunks(source, most=4 * TIMED))
    return [
        {name: batch["net_input"][name] for name in inputs}
        for _, batch in islice(EvaluationData(chunk.samples, predictor.processor, batch_size=1), 0, None, 4)
    ]


def medians(networks: Sequence[Network], rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return the median CPU seconds per row of each network; they alternate, so that other load affects all alike."""
    times: list[list[float]] = [[] for _ in networks]
    for row in rows:
        for index, network in enumerate(networks):
            network(row)  # the first call with a new shape may compile
            begun = time.process_time()
            network(row)
            times[index].append(time.process_time() - begun)
    return [statistics.median(each) for each in times]
