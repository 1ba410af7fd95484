"""A folder -> the runs below it, of all doors, found by the files that they leave."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.reports.trackers.json_lines import FILE_NAME as JSON_LOG
from xdpx.training.status import STATUS_FILE
from xdpx.utils import io
from xdpx.utils.storage import Entry

TRAINER_STATE = "trainer_state.json"
LOGS = (TRAIN_LOG, VALID_LOG, METRICS_FILE, JSON_LOG, TRAINER_STATE)
PASSED_OVER = frozenset({
    "plots", "checkpoints", "summaries", "stacks", "transformers", "eval", "eval_out", "decoder_out", "infer_out",
    "__pycache__", "node_modules",
})  # fmt: skip
"""Folders in which no runs are looked for."""
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_DATA = frozenset({"meta.hjson", "search.jsonl"})
"""What prepared data and searches hold, which have a status, too."""


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run.

    Attributes:
        path: of the folder.
        files: what is in it, by name.
    """

    path: str
    files: Mapping[str, Entry]

    @property
    def door(self) -> str:
        """Which door it came through, as well as its files tell."""
        if {"run.json", "experiment_cls_vars.txt", "model_params.txt"} & self.files.keys():
            return "x-exp"
        if self.newest_checkpoint or {TRAINER_STATE, JSON_LOG} & self.files.keys():
            return "Trainer"
        tables = {TRAIN_LOG, VALID_LOG, "args.py", "log.txt"} & self.files.keys()
        return "x-train" if tables or METRICS_FILE not in self.files else "Trainer"

    @property
    def newest_checkpoint(self) -> str:
        """The name of the newest folder of a checkpoint of a Trainer; '' when there is none."""
        steps = [int(found[1]) for name in self.files if (found := _CHECKPOINT.fullmatch(name))]
        return f"checkpoint-{max(steps)}" if steps else ""

    @property
    def modified(self) -> float:
        """When something of it was last written, in seconds since 1970; 0 when it is not known."""
        times = [entry.modified or 0.0 for name, entry in self.files.items() if name in {*LOGS, "log.txt", STATUS_FILE}]
        return max(times, default=0.0) or max((entry.modified or 0.0 for entry in self.files.values()), default=0.0)


def runs_below(root: str) -> Iterator[RunFolder]:
    """Go through the runs in a folder and below it. What cannot be listed, and links to folders, are passed over."""
    waiting = [io.plain(root)]
    while waiting:
        folder = waiting.pop()
        files = listing(folder)
        if is_run(files):
            yield RunFolder(folder, files)
        waiting += reversed(folders_in(files))


def folders_in(files: Mapping[str, Entry]) -> list[str]:
    """Return the folders among these files in which runs are looked for, by name."""
    return [
        entry.path
        for name, entry in sorted(files.items())
        if entry.folder and not _is_passed_over(name) and not os.path.islink(entry.path)
    ]


def runs_in(pattern: str) -> list[str]:
    """Return the folders that a path stands for: itself, or with `/*` or `**/*` at its end the runs inside or below."""
    if pattern.endswith("**/*"):
        return sorted(run.path for run in runs_below(pattern.removesuffix("**/*").rstrip("/") or "/"))
    if pattern.endswith("/*"):
        inside = listing(io.plain(pattern.removesuffix("/*") or "/")).values()
        return [entry.path for entry in inside if entry.folder and is_run(listing(entry.path))]
    return [pattern]


def listing(folder: str) -> dict[str, Entry]:
    """Return what is in a folder, by name; nothing where it cannot be listed."""
    try:
        return {io.name(entry.path): entry for entry in io.store(folder).children(folder)}
    except OSError:
        return {}


def is_run(files: Mapping[str, Entry]) -> bool:
    """Tell whether these are the files of a run."""
    if any(name in files and not files[name].folder for name in LOGS):
        return True
    if STATUS_FILE in files:
        return not _DATA & files.keys()
    return any(entry.folder and _CHECKPOINT.fullmatch(name) for name, entry in files.items())


def _is_passed_over(name: str) -> bool:
    return name in PASSED_OVER or name.startswith(".") or ".tmp-" in name or bool(_CHECKPOINT.fullmatch(name))
