"""The output of a search: configs of the trials and of the best one, tables, figures, and the status file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

import numpy as np

from xdpx.checkpoints import aliases, layout
from xdpx.config.args_file import starter_text
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run
from xdpx.logger import log
from xdpx.reports.run_logs import read_run
from xdpx.reports.tables import as_tsv
from xdpx.search.importance import importances
from xdpx.search.search import Search
from xdpx.search.trials import Trial
from xdpx.training.status import STATUS_FILE, RunState
from xdpx.tuning import overview, tables
from xdpx.tuning.folder import BEST, CONFIGS, IMPORTANCE, IMPORTANCE_FIGURE, OVERVIEW, RESULTS
from xdpx.tuning.objective import interval_at, progress_of
from xdpx.tuning.plan import Plan
from xdpx.utils import io
from xdpx.utils.commit import write_bytes, write_text
from xdpx.utils.decisions import is_better

SHARE_OF_TIME = 0.02
"""Largest share of the time spent on drawing during a search; at its end everything is drawn."""
WEIGHTS = ("checkpoint-*.pt", "checkpoint-*.pts", "checkpoint-*.manifest.json", "transformers")
"""The files of a trial that save_above_score removes; logs and tables stay."""

_next_drawing = 0.0


def trial_folder(plan: Plan, trial: int) -> str:
    """Return the folder of a trial."""
    return io.join(plan.settings.save_dir, f"trial_{trial}")


# ---- configs


def write_trial(plan: Plan, trial: int, runs: Sequence[Run]) -> None:
    """Write configs/trial_N.hjson, the config of a trial, with which x-train trains it to the end of its schedule."""
    path = io.join(plan.settings.save_dir, CONFIGS, f"trial_{trial}.hjson")
    if not io.isfile(path):
        write_text(path, config_text(runs), private=True)


def config_text(runs: Sequence[Run], *, heading: str = "") -> str:
    """Return the config of one run, or of a loop over several."""
    texts = [starter_text(run, run.meta_keys) for run in runs]
    if len(texts) == 1:
        return heading + texts[0]
    return heading + "[\n" + "".join(f"{text.rstrip()}\n" for text in texts) + "]\n"


def write_best(plan: Plan, trial: Trial) -> None:
    """Write best.hjson: the base config with the best values, and a new save_dir."""
    runs = plan.runs_of(trial.number, trial.values, as_trial=False)
    path = io.join(plan.settings.save_dir, BEST)
    write_text(path, config_text(runs, heading=_heading(plan, trial)), private=True)


def _heading(plan: Plan, trial: Trial) -> str:
    where = ", ".join(filter(None, (best_weights(folder) for folder in member_folders(plan, trial.number))))
    seen = tables.best_samples(trial)
    return (
        f"// trial {trial.number} of {plan.settings.save_dir}: {plan.metric} {trial.best:.6g} after {seen} samples\n"
        f"// its weights: {where or 'were not kept'}\n"
    )


def member_folders(plan: Plan, trial: int) -> list[str]:
    """Return the folders of the runs of a trial."""
    folder = trial_folder(plan, trial)
    return [io.join(folder, member.name) if member.name else folder for member in plan.members]


def best_weights(folder: str) -> str:
    """Return the file of the best weights of a run; '' if there is none."""
    try:
        return io.join(folder, layout.weights_file(aliases.best_step(folder)))
    except FileNotFoundError:
        return ""


# ---- while it is at work, and at its end


def write_progress(plan: Plan, search: Search) -> None:
    """Write tables and status; draw the overview unless that would take more than `SHARE_OF_TIME`."""
    global _next_drawing
    tables.write_tables(plan.settings.save_dir, search, intervals(plan, search))
    write_state(plan, search, "running")
    begun = time.monotonic()
    if begun >= _next_drawing and search.best is not None:
        draw(plan, search)
        _next_drawing = time.monotonic() + (time.monotonic() - begun) / SHARE_OF_TIME


def write_all(plan: Plan, search: Search) -> None:
    """Write the tables, and if there is a best trial its config and the overview."""
    tables.write_tables(plan.settings.save_dir, search, intervals(plan, search))
    if search.best is not None:
        write_best(plan, search.best)
        draw(plan, search)


def finish(plan: Plan, search: Search) -> None:
    """Remove weights that are not to be kept, write the final files, and log the best trial."""
    best = search.best
    if best is None:
        return
    prune(plan, search)
    _write_importance(plan, search)
    write_best(plan, best)
    interval = intervals(plan, search).get(best.number)
    spread = f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g})" if interval else ""
    log.info(f"best: trial {best.number} with {plan.metric} {best.best:.6g}{spread}")
    if best.state == "failed":  # then all others have no score at all
        log.warning(
            f"no trial came to its end: all {len(search.trials)} failed, and this is the best score before that. With "
            f"these values, training fails as well: see {io.join(plan.settings.save_dir, RESULTS)}."
        )
    for name, value in best.values.items():
        log.info(f"  {name}: {value}")
    where = ", ".join(filter(None, map(best_weights, member_folders(plan, best.number))))
    log.info(f"its weights: {where or 'were not kept (save_above_score)'}")
    _draw_run(member_folders(plan, best.number))
    log.info(f"to train with these values: x-train {io.join(plan.settings.save_dir, BEST)}")


def intervals(plan: Plan, search: Search) -> dict[int, tuple[float, float]]:
    """Return the 95 % interval of the best score of each trial that consists of several runs."""
    if len(plan.members) < 2:
        return {}
    found = {}
    for trial in search.trials:
        samples = tables.best_samples(trial)
        if samples is None:
            continue
        runs = plan.runs_of(trial.number, trial.values)
        parts = [progress_of(stage) for stage in plan.stages_of(runs, trial.number, plan.budget.total)]
        interval = interval_at(parts, samples, folds=len(plan.base_runs), metric=plan.metric)
        if interval is not None:
            found[trial.number] = interval
    return found


def draw(plan: Plan, search: Search) -> None:
    """Draw overview.png. A failure is only a warning."""
    best, settings = search.best, plan.settings
    try:
        picture = overview.draw_overview(
            search.trials, metric=plan.metric, total=plan.budget.total, best=best.number if best else None,
            title=f"{io.name(settings.save_dir.rstrip('/'))}: {settings.schedule}, {settings.tuner}",
            references={folder: _reference(folder, plan) for folder in settings.ref_runs},
        )  # fmt: skip
        write_bytes(io.join(settings.save_dir, OVERVIEW), picture)
    except Exception as error:  # whatever is wrong with a picture
        log.warning(f"{OVERVIEW} was not drawn: {type(error).__name__}: {error}", once=True)


def _reference(folder: str, plan: Plan) -> overview.Curve:
    logs = read_run(folder, train=False, thinned=True)
    steps, scores = logs.valid["step"], logs.valid[f"valid_{plan.metric}"]
    if not np.isfinite(scores).any():
        log.warning(f"ref_runs: '{folder}' has no evaluation with {plan.metric}, so {OVERVIEW} lacks it.", once=True)
    seen = logs.samples_at(steps) if logs.samples_per_step else steps * plan.budget.per_step
    known = [(int(samples), float(score)) for samples, score in zip(seen, scores, strict=True)]
    sign = 1 if plan.direction == "maximize" else -1  # of this search: the run may have been judged by another metric
    return overview.best_so_far([point for point in known if point[1] == point[1]], sign)


def write_state(plan: Plan, search: Search, state: RunState, reason: str = "") -> None:
    """Write status.json, which people read, and the next start of the search."""
    best = search.best
    facts: dict[str, Any] = {
        "status": state, "reason": reason, "fingerprint": plan.run_fingerprint, "metric": plan.metric,
        "trials": len(search.trials), "max_trials": search.max_trials, "samples": search.samples,
        "best_score": None if best is None else best.best, "best_trial": None if best is None else best.number,
        "best_values": None if best is None else best.values,
        "best_weights": [] if best is None else [best_weights(each) for each in member_folders(plan, best.number)],
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_text(io.join(plan.settings.save_dir, STATUS_FILE), text)


def prune(plan: Plan, search: Search) -> None:
    """Remove the weights of the trials whose score is not better than save_above_score, and of those that failed.

    A failed trial can be the best one if no other has a score; then only its score counts.
    """
    limit = plan.settings.save_above_score
    if limit is None:
        return
    ascending = plan.direction == "maximize"
    failed = [each for each in search.trials if each.state == "failed" and each is not search.best]
    poor = [
        each for each in search.trials
        if each in failed or each.best is None or not is_better(each.best, limit, ascending=ascending)
    ]  # fmt: skip
    for trial in poor:
        for folder in member_folders(plan, trial.number):
            for name in io.listdir(folder) if io.isdir(folder) else []:
                if any(fnmatch(name, pattern) for pattern in WEIGHTS):
                    path = io.join(folder, name)
                    io.rmtree(path) if io.isdir(path) else io.remove(path)
    if poor:
        log.info(f"save_above_score {limit}: the weights of {len(poor)} of {len(search.trials)} trials were removed")


def _draw_run(folders: Sequence[str]) -> None:
    """Draw the figures of the best trial; for others, there is x-viz."""
    from xdpx.reports.figures import draw_run

    try:
        for folder in folders:
            draw_run(folder)
    except Exception as error:  # whatever is wrong with a picture
        log.warning(f"the figures of the best trial were not drawn: {type(error).__name__}: {error}")


def _write_importance(plan: Plan, search: Search) -> None:
    """Write and draw the importance of each parameter for the score, if there are enough trials."""
    folder = plan.settings.save_dir
    try:
        found = importances(search.space, search.trials)
    except ConfigError as error:  # Optuna is not installed
        log.info(f"{IMPORTANCE} is not written: {error.faults[0].problem} {error.faults[0].remedy}")
        return
    if not found:
        return
    rows = [{"parameter": each.name, "share": each.share, "low": each.low, "high": each.high} for each in found]
    write_text(io.join(folder, IMPORTANCE), as_tsv(rows, ("parameter", "share", "low", "high")))
    bars = [(each.name, each.share, each.low, each.high) for each in found]
    try:
        picture = overview.draw_importance(bars, title=f"{io.name(folder.rstrip('/'))}: what determines {plan.metric}")
        write_bytes(io.join(folder, IMPORTANCE_FIGURE), picture)
    except Exception as error:  # whatever is wrong with a picture
        log.warning(f"{IMPORTANCE_FIGURE} was not drawn: {type(error).__name__}: {error}")
