"""What 2 and 4 processes train, by x-train and by the Trainer, is what one trains with the same global batch.

One table for both doors. All of it is trained by processes that are forked off one, once for all tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from tests import processes
from tests.journeys.test_many_devices import make_rows
from tests.tiers import LONG, some

SCRIPT = Path(__file__).with_name("equal_devices.py")
STEPS, BEGUN = (50, 23) if LONG else (26, 14)
"""Updates, and those before the checkpoint that is gone on from: an epoch has 12. The short form ends in the third."""
ONWARD = (1, 2, 4) if LONG else (1, 2)
"""Numbers of processes that go on from what four have begun."""

X_TRAIN: dict[str, Any] = {
    "__parent__": "data/meta", "data_dir": "data", "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8,
    "hidden_size": 8, "dropout": 0.0, "max_update": STEPS, "batch_size": 18, "learning_rate": 0.01,
    "eval_interval": -1, "major_metric": "acc", "log_interval": 1, "save_full_checkpoint": True, "resume": "auto",
    "cuda": False,
}  # fmt: skip
TRAINER: dict[str, Any] = {"batch_size": 16, "max_steps": STEPS, "save_steps": BEGUN, "optim": "adamw_torch"}
PLAIN = {"optimizer": "sgd", "batch_size": 16, "clip_norm": 0, "learning_rate": 0.5}
BMUF = {"use_bmuf": True, "block_momentum": 0.0, "global_sync_iter": 1, "warmup_iterations": 0}


class Case(NamedTuple):
    """A row of the table: how several processes train, and what one trains that they are compared with."""

    door: str
    several: dict[str, Any]
    values: dict[str, Any]


CASES = {
    "x-train-ddp": Case("x-train", {}, {}),
    "x-train-accumulated": Case("x-train", {}, {"update_freq": 2, "ema_decay": 0.9, "batch_by_len": True}),
    "x-train-bmuf": Case("x-train", BMUF, PLAIN),
    "x-train-fsdp": Case("x-train", {"strategy": "fsdp"}, {"ema_decay": 0.9}),
    "x-train-fgm": Case("x-train", {}, {"task": "fgm"}),
    "x-train-freelb": Case("x-train", {}, {"task": "freelb", "rand_init_mag": 0.0}),
    "trainer-ddp": Case("Trainer", {}, {}),
    "trainer-accumulated": Case("Trainer", {}, {"gradient_accumulation_steps": 2, "optim": "sgd"}),
    "trainer-fsdp": Case("Trainer", {"fsdp": "full_shard"}, {"ema_decay": 0.9}),
}
SHARDED = ("x-train-fsdp", "trainer-fsdp")
NAMES = some(CASES, ["trainer-accumulated", *SHARDED, "x-train-bmuf", "x-train-freelb"])
"""In the short form, accumulation stands for plain data parallelism; test_many_devices.py has that of x-train."""
RESUMED = ["x-train-ddp", "trainer-ddp", *SHARDED] if LONG else ["x-train-fsdp"]
"""Trainings whose checkpoint of four processes goes on with other numbers. What two shared out by the Trainer goes on
alone in tests/promises/test_trainer_pair.py."""
TRAINED = dict.fromkeys((2, 4), NAMES) if LONG else {2: [name for name in NAMES if name not in RESUMED], 4: RESUMED}
"""Number of processes that train from the start -> what they train."""


def training(name: str, size: int, *, called: str = "", **more: Any) -> dict[str, Any]:
    """Return what a row of the table trains with so many processes."""
    case, called = CASES[name], called or f"{name}-{size}"
    common = {**X_TRAIN, "save_dir": called} if case.door == "x-train" else TRAINER
    several = case.several if size > 1 else {}
    return {"door": case.door, "name": called, "values": {**common, **case.values, **several, **more}}


def begun(name: str) -> tuple[str, str]:
    """Return the folder that four processes have left in the middle, and where it lies in the one that goes on."""
    if name.startswith("x-train"):
        return f"{name}-begun", ""
    return f"{name}-4/checkpoint-{BEGUN}", f"checkpoint-{BEGUN}"


def stages() -> list[dict[str, Any]]:
    """Return all that is to be trained: by one process, by several, and on from a checkpoint of four."""
    prepro = {"data_source": "raw", "data_dir": "data", "processor": "single", "loader": "single", "tokenizer": "space"}
    data = {"door": "x-prepro", "name": "prepro", "values": {**prepro, "max_len": 16}}
    found = [stage("from-start-1", 1, [data, *(training(name, 1) for name in NAMES)])]
    for size, names in TRAINED.items():
        found.append(stage(f"from-start-{size}", size, [training(name, size) for name in names]))
    by_x_train = [name for name in RESUMED if name.startswith("x-train")]  # the Trainer keeps one of the middle
    found[-1]["trainings"] += [training(name, 4, called=f"{name}-begun", train_steps=BEGUN) for name in by_x_train]
    for size in ONWARD:
        called = {name: f"{name}-onward-{size}" for name in RESUMED}
        copies = {str(Path(called[name], begun(name)[1])): begun(name)[0] for name in RESUMED}
        onward = [training(name, size, called=called[name]) for name in RESUMED]
        found.append(stage(f"onward-{size}", size, onward, copies))
    little = training("trainer-ddp", 2, called="trainer-little", auto_find_batch_size=True)
    found.append(stage("little", 2, [little]))
    found[0]["trainings"].append(training("trainer-ddp", 1, called="trainer-smaller", batch_size=12))
    return found


def stage(name: str, size: int, trainings: Sequence[Any], copies: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "size": size, "trainings": trainings, "copies": copies or {}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train everything; return the folder."""
    folder = tmp_path_factory.mktemp("equal")
    make_rows(folder)
    (folder / "stages.json").write_text(json.dumps(stages()))
    (ended,) = processes.run_together([[sys.executable, str(SCRIPT), str(folder)]], [processes.environment()])
    assert ended.code == 0, processes.told([ended])
    return folder


def seen(folder: Path, stage: str, called: str) -> list[list[int]]:
    """Return the rows of each micro-batch, over all processes, in the order of one.

    x-train deals a batch out to its processes row by row, the Trainer in pieces. A thread of x-train's is ahead.
    """
    ranks = [json.loads(path.read_text())[called]["rows"] for path in sorted(folder.glob(f"{stage}-*.json"))]
    together = dealt if called.startswith("x-train") else chained
    return [together(shares) for shares in zip(*ranks, strict=False)]


def dealt(shares: Sequence[list[int]]) -> list[int]:
    return [share[index] for index in range(len(shares[0])) for share in shares if index < len(share)]


def chained(shares: Sequence[list[int]]) -> list[int]:
    return [row for share in shares for row in share]


def losses(folder: Path, stage: str, called: str) -> list[float]:
    """Return the loss of each update."""
    if not called.startswith("x-train"):
        found: list[float] = json.loads((folder / f"{stage}-0.json").read_text())[called]["losses"]
        return found
    header, *rows = (folder / called / "train.log.tsv").read_text().splitlines()
    column = header.split("\t").index("loss")
    return [float(row.split("\t")[column]) for row in rows]


def weights(folder: Path, called: str) -> dict[str, torch.Tensor]:
    """Return the weights at the end."""
    if called.startswith("x-train"):
        return torch.load(folder / called / f"checkpoint-{STEPS}.pt", weights_only=True)
    return load_file(folder / called / "last/model.safetensors")


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference between two models."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "size"), [(name, size) for size, names in TRAINED.items() for name in names])
def test_several_processes_take_the_updates_of_one(trained: Path, name: str, size: int) -> None:
    accumulated = {"update_freq", "gradient_accumulation_steps"} & CASES[name].values.keys()
    batches = STEPS * (2 if accumulated else 1)
    (alone, several), of_one = ((f"from-start-{n}", f"{name}-{n}") for n in (1, size)), f"{name}-1"
    assert len(seen(trained, *alone)) >= batches
    assert seen(trained, *several)[:batches] == seen(trained, *alone)[:batches]
    assert len(losses(trained, *alone)) == STEPS
    assert losses(trained, *several) == pytest.approx(losses(trained, *alone), abs=1e-5)
    assert distance(weights(trained, several[1]), weights(trained, of_one)) < 1e-5


@pytest.mark.parametrize("size", ONWARD)
@pytest.mark.parametrize("name", RESUMED)
def test_a_checkpoint_of_four_processes_goes_on_with_any_number(trained: Path, name: str, size: int) -> None:
    whole, onward = f"{name}-4", f"{name}-onward-{size}"
    between = distance(weights(trained, onward), weights(trained, whole))
    assert between == 0 if size == 4 else between < 1e-5
    left = STEPS - BEGUN
    assert seen(trained, f"onward-{size}", onward)[:left] == seen(trained, "from-start-4", whole)[BEGUN:STEPS]


def test_memory_that_runs_out_on_one_process_begins_all_anew_with_smaller_batches(trained: Path) -> None:
    """Of 8 rows on each of two they become 7, then 6: the training of one process with batches of 12."""
    several, alone = ("little", "trainer-little"), ("from-start-1", "trainer-smaller")
    assert seen(trained, *several)[-STEPS:] == seen(trained, *alone)
    assert losses(trained, *several) == pytest.approx(losses(trained, *alone), abs=1e-5)
    assert distance(weights(trained, several[1]), weights(trained, alone[1])) < 1e-5
