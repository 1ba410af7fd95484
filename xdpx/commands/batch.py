"""Perform the runs of one config: a single run in this process, several in subprocesses, with a table at the end."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from xdpx.commands import child, outcomes
from xdpx.config import catalogue
from xdpx.config.faults import Fault
from xdpx.config.loading import Run, fingerprint
from xdpx.config.printing import what_varies
from xdpx.utils import io
from xdpx.utils.process_facts import send_signal


@dataclass
class Outcome:
    """The result of one run. `code` is its exit code; None if it was not started."""

    run: Run
    status: str = "not started"
    seconds: float = 0.0
    code: int | None = None


def inspect(run: Run) -> Iterable[Fault]:
    """Return the faults found by the command's own `check`; none for one of several runs that has already finished."""
    if run.total > 1 and has_finished(run):
        return []
    check = getattr(run.picked("command")(run), "check", None)
    return check() if check else []


def has_finished(run: Run) -> bool:
    """Return whether status.json in the output folder says that this very run has finished; False with `overwrite`.

    With `train_steps`, a stage that is not the last does not count as finished for a run that requests another stage.
    Neither does a run whose command finds it `outdated`: what it was made of has changed since.
    """
    if run.values.get("overwrite"):
        return False
    status = stored_status(run)
    if status.get("status") != "finished" or status.get("fingerprint") != fingerprint(run):
        return False
    stage, to_go = status.get("train_steps"), status.get("step", 0) < status.get("total_steps", 0)
    another_stage = stage != run.values.get("train_steps") or (stage is not None and run.values.get("resume") is True)
    if to_go and another_stage:
        return False
    command = run.picked("command")
    return not (hasattr(command, "outdated") and command(run).outdated())


def stored_status(run: Run) -> dict[str, Any]:
    """Return the content of status.json in the output folder of a run; empty if there is none."""
    folder = output_folder(run)
    path = io.join(folder, "status.json") if folder else ""
    if not path or not io.isfile(path):
        return {}
    with io.open(path, encoding="utf-8") as file:
        try:
            status = json.loads(file.read())
        except ValueError:  # damaged: the run is not known to have finished
            return {}
    return status if isinstance(status, dict) else {}


def output_folder(run: Run) -> str:
    """Return the folder a command writes to: its first parameter that is a new directory; '' if it has none."""
    declared = catalogue.entry("command", run.command).parameters
    keys = [item.key for item in declared if item.path == "new_directory"]
    return str(run.values.get(keys[0], "")) if keys else ""


def run_all(runs: Sequence[Run], *, jobs: int = 1, keep_going: bool = False, verbose: bool = False) -> int:
    """Perform the runs of one config. Return the exit code: that of the first run that failed, or 0."""
    if len(runs) == 1:
        if runs[0].total > 1 and has_finished(runs[0]):  # --only selected one of several runs
            _tell_of_other_code(runs[0])
            sys.stderr.write(f"run {runs[0].index + 1} of {runs[0].total}: already finished\n")
            return 0
        return child.perform(runs[0])
    outcomes_of_runs = [Outcome(run) for run in runs]
    for outcome in outcomes_of_runs:
        if has_finished(outcome.run):
            _tell_of_other_code(outcome.run)
            outcome.status, outcome.code = "finished before", 0
    pending = [outcome for outcome in outcomes_of_runs if outcome.code is None]
    _Pool(pending, min(jobs, max(1, len(pending))), keep_going=keep_going, verbose=verbose).work()
    sys.stderr.write(table(outcomes_of_runs) + over_seeds(outcomes_of_runs))
    return next((outcome.code for outcome in outcomes_of_runs if outcome.code), 0)


def _tell_of_other_code(run: Run) -> None:
    """Warn if a run that has finished, and is skipped, was trained with other modules of the user."""
    if run.command == "x-train":
        from xdpx.inference.own_code import SO_OF_FINISHED, warn_of_changes

        warn_of_changes(output_folder(run), [run], so=SO_OF_FINISHED)


class _Pool:
    """Performs the pending runs in order, in up to `jobs` processes at a time."""

    def __init__(self, pending: list[Outcome], jobs: int, *, keep_going: bool, verbose: bool) -> None:
        self.pending = pending
        self.jobs = jobs
        self.keep_going = keep_going
        self.verbose = verbose
        self.active: dict[SpawnProcess, tuple[Outcome, float]] = {}
        self.stopping = False
        self.signal: int | None = None

    def work(self) -> None:
        """Perform all runs. A signal to this process is forwarded to them, and no further run is started."""
        before = {number: signal.signal(number, self.pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while self.active or (self.pending and not self.stopping):
                while self.pending and not self.stopping and len(self.active) < self._room_for(self.pending[0].run):
                    self.start(self.pending.pop(0))
                self.collect()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _room_for(self, run: Run) -> int:
        """Return how many runs may be active beside and with this one: it alone if it reads what others write."""
        return 1 if run.awaits else self.jobs

    def pass_on(self, number: int, frame: object) -> None:
        """Forward a signal to every active run; each saves what it can and ends by itself."""
        self.stopping, self.signal = True, number
        for process in self.active:
            send_signal(process, number)

    def start(self, outcome: Outcome) -> None:
        run = outcome.run
        prefix = f"[{run.index + 1}] " if self.jobs > 1 else ""
        threads = max(1, (os.cpu_count() or 1) // self.jobs) if self.jobs > 1 else None
        sys.stderr.write(f"{prefix}run {run.index + 1} of {run.total}: {run.values.get('save_dir', run.source)}\n")
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=child.main, args=(run, prefix, threads, self.verbose))
        process.start()
        outcome.status = "running"
        self.active[process] = (outcome, time.monotonic())
        if self.signal is not None:  # the signal arrived while the process was being started
            send_signal(process, self.signal)

    def collect(self) -> None:
        """Wait until at least one run has ended, and record its result."""
        wait([process.sentinel for process in self.active])
        for process in [process for process in self.active if not process.is_alive()]:
            outcome, began = self.active.pop(process)
            process.join()
            outcome.seconds = time.monotonic() - began
            outcome.code, outcome.status = _verdict(process.exitcode or 0)
            if outcome.code and not self.keep_going:
                self.stopping = True


def _verdict(code: int) -> tuple[int, str]:
    """Return (exit code, status in words) of a process; a negative code is minus the signal that killed it."""
    if code < 0:
        return 128 - code, f"killed by {signal.Signals(-code).name}"
    words = {0: "finished", outcomes.PREEMPTED: "preempted", outcomes.INTERRUPTED: "interrupted"}
    return code, words.get(code, f"failed ({code})")


COLUMNS: tuple[tuple[str, Callable[[Outcome, Sequence[Run]], str]], ...] = (
    ("run", lambda outcome, runs: str(outcome.run.index + 1)),
    ("what varies", lambda outcome, runs: what_varies(outcome.run, runs)),
    ("status", lambda outcome, runs: outcome.status),
    ("seconds", lambda outcome, runs: f"{outcome.seconds:.1f}" if outcome.seconds else "-"),
    ("best score", lambda outcome, runs: _best_score(outcome)),
)


def _best_score(outcome: Outcome) -> str:
    status = stored_status(outcome.run) if outcome.code in {outcomes.FINISHED, outcomes.PREEMPTED} else {}
    score = status.get("best_score")
    return f"{score:.4f}" if isinstance(score, int | float) else "-"


def table(results: Sequence[Outcome]) -> str:
    """Return a table with aligned columns, one row for each run."""
    runs = [outcome.run for outcome in results]
    rows = [[title for title, _ in COLUMNS]]
    rows += [[write(outcome, runs) for _, write in COLUMNS] for outcome in results]
    if {row[-1] for row in rows[1:]} == {"-"}:  # no scores, as with x-prepro
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n" + "\n".join(lines) + "\n"


def over_seeds(results: Sequence[Outcome]) -> str:
    """Return a table with a row for each group of finished trainings that differ only in their seed; '' if none do."""
    done = [each.run for each in results if each.code == outcomes.FINISHED and each.run.command == "x-train"]
    if len({run.values.get("seed") for run in done}) < 2:
        return ""
    from xdpx.commands.seeds import differing, groups_of, row_of
    from xdpx.reports.run_logs import read_run
    from xdpx.reports.tables import as_text, union_of_keys

    groups = groups_of([read_run(output_folder(run), train=False) for run in done])
    if all(len(group.scores) < 2 for group in groups):
        return ""
    rows = [row_of(group, differing(groups)) for group in groups]
    return f"\nover seeds\n{as_text(rows, union_of_keys(rows))}"
