"""Find the runs below a folder, of x-train, x-exp and Trainer, by the files that they write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdpx.checkpoints.folders import folder_name, step_of
from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.reports.trackers.json_lines import FILE_NAME as JSON_LOG
from xdpx.training.status import STATUS_FILE
from xdpx.utils import io
from xdpx.utils.owners import is_lasting
from xdpx.utils.storage import Entry

TRAINER_STATE = "trainer_state.json"
LOGS = (TRAIN_LOG, VALID_LOG, METRICS_FILE, JSON_LOG, TRAINER_STATE)
PASSED_OVER = frozenset({
    "plots", "checkpoints", "summaries", "stacks", "transformers", "eval", "eval_out", "decoder_out", "infer_out",
    "__pycache__", "node_modules",
})  # fmt: skip
"""Names of folders that are not searched for runs."""
_DATA = frozenset({"meta.hjson", "search.jsonl"})
"""Files of prepared data and of searches, whose folders have a status file but are not runs."""


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run.

    Attributes:
        path: of the folder.
        files: its content, by name.
    """

    path: str
    files: Mapping[str, Entry]

    @property
    def door(self) -> str:
        """The program that wrote the run, judged by its files."""
        if {"run.json", "experiment_cls_vars.txt", "model_params.txt"} & self.files.keys():
            return "x-exp"
        if self.newest_checkpoint or {TRAINER_STATE, JSON_LOG} & self.files.keys():
            return "Trainer"
        tables = {TRAIN_LOG, VALID_LOG, "args.py", "log.txt"} & self.files.keys()
        return "x-train" if tables or METRICS_FILE not in self.files else "Trainer"

    @property
    def newest_checkpoint(self) -> str:
        """The name of the Trainer's newest checkpoint folder; '' if there is none."""
        steps = [step for name in self.files if (step := step_of(name)) is not None]
        return folder_name(max(steps)) if steps else ""

    @property
    def modified(self) -> float:
        """When the run last wrote something, in seconds since 1970; 0 if unknown."""
        times = [entry.modified or 0.0 for name, entry in self.files.items() if name in {*LOGS, "log.txt", STATUS_FILE}]
        return max(times, default=0.0) or max((entry.modified or 0.0 for entry in self.files.values()), default=0.0)


def runs_below(root: str) -> Iterator[RunFolder]:
    """Yield the runs in a folder and below it. Unreadable folders and links to folders are skipped."""
    waiting = [io.plain(root)]
    while waiting:
        folder = waiting.pop()
        files = listing(folder)
        if is_run(files):
            yield RunFolder(folder, files)
        waiting += reversed(folders_in(files))


def folders_in(files: Mapping[str, Entry]) -> list[str]:
    """Return the paths of the folders among these files that may contain runs, sorted by name."""
    return [
        entry.path
        for name, entry in sorted(files.items())
        if entry.folder
        and name not in PASSED_OVER
        and is_lasting(name)
        and step_of(name) is None
        and not os.path.islink(entry.path)
    ]


def runs_in(pattern: str) -> list[str]:
    """Return the folders that a path stands for: itself or, if it ends with `/*` or `**/*`, the runs in or below it."""
    if pattern.endswith("**/*"):
        return sorted(run.path for run in runs_below(pattern.removesuffix("**/*").rstrip("/") or "/"))
    if pattern.endswith("/*"):
        inside = listing(io.plain(pattern.removesuffix("/*") or "/")).values()
        return [entry.path for entry in inside if entry.folder and is_run(listing(entry.path))]
    return [pattern]


def listing(folder: str) -> dict[str, Entry]:
    """Return the content of a folder by name; {} if it cannot be listed."""
    try:
        return {io.name(entry.path): entry for entry in io.store(folder).children(folder)}
    except OSError:
        return {}


def is_run(files: Mapping[str, Entry]) -> bool:
    """Return whether these are the files of a run."""
    if any(name in files and not files[name].folder for name in LOGS):
        return True
    if STATUS_FILE in files:
        return not _DATA & files.keys()
    return any(entry.folder and step_of(name) is not None for name, entry in files.items())
