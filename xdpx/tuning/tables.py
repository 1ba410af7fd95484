"""The tables of a search: one row for each trial, and one for each decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.reports.tables import as_tsv
from xdpx.search.search import Search
from xdpx.search.trials import Trial
from xdpx.tuning.folder import DECISIONS, RESULTS
from xdpx.utils import io
from xdpx.utils.commit import write_text

Intervals = Mapping[int, tuple[float, float]]
"""{trial: ends of the 95 % interval of its best score}, of trials with several runs."""

FIRST = ("trial", "state", "score", "low", "high", "at_samples", "samples")


def write_tables(folder: str, search: Search, intervals: Intervals) -> None:
    """Write results.tsv and decisions.tsv, each whole or not at all."""
    rows = result_rows(search, intervals)
    columns = [name for name in FIRST if intervals or name not in {"low", "high"}]
    columns += [*search.space.names, "why", "folder"]
    write_text(io.join(folder, RESULTS), as_tsv(rows, columns))
    write_text(io.join(folder, DECISIONS), as_tsv(decision_rows(search), DECISION_COLUMNS))


def result_rows(search: Search, intervals: Intervals) -> list[dict[str, Any]]:
    """Return a row for each trial, the best first; then those without a score, and the failed ones last."""
    why = {decision.trial: decision.why for decision in search.decisions}
    trials = sorted(search.trials, key=lambda trial: trial.place)
    return [_row(trial, why.get(trial.number, ""), intervals.get(trial.number)) for trial in trials]


def _row(trial: Trial, why: str, interval: tuple[float, float] | None) -> dict[str, Any]:
    low, high = interval or (None, None)
    facts: dict[str, Any] = {"trial": trial.number, "state": trial.state, "score": trial.best, "low": low, "high": high}
    facts |= {"at_samples": best_samples(trial), "samples": trial.samples, "why": why}
    return {**trial.values, **facts, "folder": f"trial_{trial.number}"}


def best_samples(trial: Trial) -> int | None:
    """Return after how many samples a trial first had its best score; None if it has no score."""
    return next((seen for seen, score in trial.history if score == trial.best), None)


DECISION_COLUMNS = ("number", "trial", "decision", "samples", "score", "why")


def decision_rows(search: Search) -> list[dict[str, Any]]:
    """Return a row for each decision, in chronological order."""
    return [
        {
            "number": each.number, "trial": each.trial, "decision": each.verdict, "samples": each.samples,
            "score": each.score, "why": each.why,
        }
        for each in search.decisions
    ]  # fmt: skip
