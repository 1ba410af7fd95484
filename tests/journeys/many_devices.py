"""Command lines run by one or several processes: `many_devices.py FOLDER MODULE ...` runs FOLDER/stages.json.

A stage is a number of processes, and the lines that they run one after another. All processes are forked off one that
has imported everything, also the modules that are named. Each writes the exit codes and its training rows to
FOLDER/stage-<n>-<rank>.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.preloaded import import_before_forking
from tests.processes import fork_ranks
from xdpx import metrics
from xdpx import run as door
from xdpx.datasets.training_data import TrainingData
from xdpx.reports import pictures
from xdpx.runs import training
from xdpx.tasks.default import Task

IMPORTED = ("commands.train", "engines.pytorch.engine", "models.pytorch.convolutional", "reports.chart",
            "loaders.parsers", "losses.cross_entropy", "optimizers.pytorch", "datasets.findings",
            "runs.packed_ahead")  # fmt: skip
LARGEST = 4
"""Rows that fit into memory on the process with little memory."""


def note_rows(seen: dict[str, list[list[int]]]) -> None:
    """Record the sample ids of each collated micro-batch, by epoch."""
    collate = TrainingData._collate

    def noted(data: TrainingData, source: Any, rows: Any, epoch: int) -> Any:
        seen.setdefault(str(epoch), []).append(rows.tolist())
        return collate(data, source, rows, epoch)

    TrainingData._collate = noted  # type: ignore[method-assign]


def have_little_memory(failed: list[int]) -> None:
    """Make batches larger than `LARGEST` run out of memory, as on a device, and record their sizes."""
    step = Task.train_step

    def limited(task: Any, batch: Any) -> Any:
        if len(batch["target"]) > LARGEST:
            failed.append(len(batch["target"]))
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return step(task, batch)

    Task.train_step = limited  # type: ignore[method-assign]


def preload() -> None:
    """Import what each process would import itself, and turn off what takes longer than a little training or scoring:
    figures, and the many draws for the ends of intervals."""
    torch.set_num_threads(1)
    training.draw_figures = lambda settings: None
    metrics.bootstrap.__kwdefaults__["draws"] = 20
    pictures.confusion_picture = pictures.reliability_picture = lambda *what: b""
    import_before_forking(*(f"xdpx.{module}" for module in IMPORTED))


def work(lines: Sequence[list[str]], told_to: str, rank: int) -> None:
    """Run a stage as one of its processes."""
    seen: dict[str, list[list[int]]] = {}
    note_rows(seen)
    told = []
    for line in lines:
        failed: list[int] = []
        step = Task.train_step
        words = line[1:] if line[0] == "little memory" else line
        if words is not line and rank == 1:
            have_little_memory(failed)
        seen.clear()
        code = door.main(words)
        Task.train_step = step  # type: ignore[method-assign]
        told.append({"code": code, "rows": dict(seen), "too large": failed})
    Path(f"{told_to}-{rank}.json").write_text(json.dumps(told))


def main(folder: Path, *modules: str) -> None:
    os.chdir(folder)
    preload()
    import_before_forking(*modules)
    for index, (lines, size) in enumerate(json.loads(Path("stages.json").read_text())):
        name = f"stage-{index}"
        codes = fork_ranks(partial(work, lines, name), size, name)
        if any(codes):
            said = "\n".join(Path(f"{name}-{rank}.txt").read_text()[-4000:] for rank in range(size))
            sys.exit(f"stage {index} ended with {codes}:\n{said}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
