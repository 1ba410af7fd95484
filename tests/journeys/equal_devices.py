"""Trainings by x-train and the Trainer on several processes: `equal_devices.py FOLDER` runs FOLDER/stages.json.

A stage is a number of processes, and the trainings that they run one after another. All processes are forked off one
that has imported everything, so that a stage only costs its training. Each process of a stage writes its results.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.journeys.many_devices import preload
from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork_ranks
from xdpx import Trainer, TrainingArguments
from xdpx import run as door
from xdpx.datasets.training_data import TrainingData

LARGEST = 6


class Net(nn.Module):
    """A classifier of four numbers; `seen` records the row ids of each training micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.seen: list[list[int]] = []

    def forward(self, x: Tensor, row: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.seen.append(row.tolist())
        logits = self.head(torch.tanh(self.body(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def train_by_x_train(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Train with a config; return the rows of each micro-batch in order of creation."""
    seen: list[list[int]] = []
    collate = TrainingData._collate

    def noted(data: TrainingData, source: Any, rows: Any, epoch: int) -> Any:
        seen.append(rows.tolist())
        return collate(data, source, rows, epoch)

    TrainingData._collate = noted  # type: ignore[method-assign]
    try:
        code = door.main(["x-train", f"{name}.json"])
    finally:
        TrainingData._collate = collate  # type: ignore[method-assign]
    del values
    return {"code": code, "rows": seen}


class LittleMemory(Trainer):
    """Runs out of memory on the second process, at the fourth update, if a batch has more than `LARGEST` rows."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        size, loss = len(inputs["x"]), super().training_step(model, inputs, num_items_in_batch)
        if self.args.process_index == 1 and self.state.global_step == 3 and size > LARGEST:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss


def train_by_trainer(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Train with arguments, resuming from a checkpoint if there is one; return losses and rows."""
    torch.manual_seed(0)
    model, drawn = Net(), torch.Generator().manual_seed(1)
    rows = [
        {"x": torch.randn(4, generator=drawn), "row": number, "labels": number * number % 3} for number in range(192)
    ]
    batch = values["batch_size"] // int(os.environ["WORLD_SIZE"])
    known = {key: value for key, value in values.items() if key != "batch_size"}
    args = TrainingArguments(
        name, use_cpu=True, per_device_train_batch_size=batch, learning_rate=0.01, logging_steps=1,
        report_to="none", disable_tqdm=True, remove_unused_columns=False, **known,
    )  # fmt: skip
    kind = LittleMemory if args.auto_find_batch_size else Trainer
    trainer = kind(model=model, args=args, train_dataset=rows)
    trainer.train(resume_from_checkpoint=any(Path(name).glob("checkpoint-*")))
    trainer.save_model(f"{name}/last")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"code": 0, "rows": model.seen, "losses": losses}


def prepare(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare the data for x-train."""
    del values
    return {"code": door.main(["x-prepro", f"{name}.json"])}


DOORS = {"x-prepro": prepare, "x-train": train_by_x_train, "Trainer": train_by_trainer}


def work(stage: Mapping[str, Any], rank: int) -> None:
    """Run a stage as one of its processes."""
    found = {}
    for training in stage["trainings"]:
        name, values = training["name"], training["values"]
        found[name] = DOORS[training["door"]](name, values)
        if found[name]["code"]:
            raise SystemExit(f"{name} ended with {found[name]['code']}")
    Path(f"{stage['name']}-{rank}.json").write_text(json.dumps(found))


def main(folder: Path) -> None:
    os.chdir(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    preload()
    import_before_forking(*SHARDING, *SAVING)
    for stage in json.loads(Path("stages.json").read_text()):
        for copy, source in stage["copies"].items():
            shutil.copytree(source, copy)
        for training in stage["trainings"]:
            Path(f"{training['name']}.json").write_text(json.dumps(training["values"]))
        codes = fork_ranks(partial(work, stage), stage["size"], stage["name"])
        if any(codes):
            said = "\n".join(Path(f"{stage['name']}-{rank}.txt").read_text()[-4000:] for rank in range(stage["size"]))
            sys.exit(f"stage {stage['name']} ended with {codes}:\n{said}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
