"""One process of several that do the same command lines one after another: `many_devices.py FOLDER`, by a launcher.

FOLDER/lines.json holds the lines. Each process writes FOLDER/rank-<n>.json: the exit codes, and what it trained on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from xdpx import run as door
from xdpx.datasets.training_data import TrainingData
from xdpx.runs import training
from xdpx.tasks.default import Task

LARGEST = 4
"""Rows that fit into the memory of the process that has little."""


def note_rows(seen: dict[str, list[list[int]]]) -> None:
    """Write down the ids of the samples of each micro-batch that is collated, by epoch."""
    collate = TrainingData._collate

    def noted(data: TrainingData, source: Any, rows: Any, epoch: int) -> Any:
        seen.setdefault(str(epoch), []).append(rows.tolist())
        return collate(data, source, rows, epoch)

    TrainingData._collate = noted  # type: ignore[method-assign]


def have_little_memory(failed: list[int]) -> None:
    """Let larger batches than `LARGEST` run out of memory, as a device would, and note their sizes."""
    step = Task.train_step

    def limited(task: Any, batch: Any) -> Any:
        if len(batch["target"]) > LARGEST:
            failed.append(len(batch["target"]))
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return step(task, batch)

    Task.train_step = limited  # type: ignore[method-assign]


def main(folder: Path) -> None:
    training.draw_figures = lambda settings: None  # takes longer than these trainings
    seen: dict[str, list[list[int]]] = {}
    note_rows(seen)
    told = []
    for line in json.loads((folder / "lines.json").read_text()):
        failed: list[int] = []
        step = Task.train_step
        if line[0] == "little memory":
            line = line[1:]
            if os.environ.get("RANK") == "1":
                have_little_memory(failed)
        seen.clear()
        code = door.main(line)
        Task.train_step = step  # type: ignore[method-assign]
        told.append({"code": code, "rows": dict(seen), "too large": failed})
    (folder / f"rank-{os.environ.get('RANK', 0)}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
