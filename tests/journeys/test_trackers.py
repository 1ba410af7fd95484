"""Trackers by their own libraries, offline, in all three doors: what was logged can be read back with the library."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.careless import two_classes
from tests.processes import environment, run_together

Door = Callable[[Path, str], None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_classes.prepare(tmp_path_factory.mktemp("texts"))


def by_x_train(folder: Path, name: str, data: Path) -> None:
    keys: dict[str, Any] = {"report_to": [name], "max_update": 4, "max_epoch": None, "eval_interval": 2, "plots": False}
    assert two_classes.train(data, folder / "run", **keys) == 0


def by_the_trainer(folder: Path, name: str, data: Path) -> None:
    import torch

    from xdpx import Trainer, TrainingArguments

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            return {"loss": ((self.slope * x - labels) ** 2).mean(), "logits": self.slope * x}

    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor([2.0 * i])} for i in range(8)]
    args = TrainingArguments(
        str(folder / "run"), max_steps=4, logging_steps=2, eval_strategy="steps", eval_steps=2, report_to=[name],
        use_cpu=True, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    Trainer(Line(), args, train_dataset=rows, eval_dataset=rows).train()


def by_x_exp(folder: Path, name: str, data: Path) -> None:
    pytest.importorskip("jax")
    from tests.experiments.running import tiny
    from xdpx.experiments.running import run

    experiment = tiny.Tiny(STEPS=4, EVAL=2, SAVE=4)
    assert run(experiment, job_log_dir=str(folder / "run"), plots=False, eval_on_test=True, report_to=[name]) == 0


DOORS = [by_x_train, by_the_trainer, by_x_exp]


def tensorboard(folder: Path) -> dict[str, list[int]]:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (events,) = {path.parent for path in (folder / "run/runs").rglob("events.*")}
    found = reading.EventAccumulator(str(events))
    found.Reload()
    return {tag: [event.step for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def wandb(folder: Path) -> dict[str, list[int]]:
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, list[int]] = {}
    for raw in leveldb_records(next(folder.rglob("run-*.wandb")).read_bytes()):
        record = Record()
        record.ParseFromString(raw)
        values = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for tag in values:
            found.setdefault(tag, []).append(values["train/global_step"])
    return found


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a log in the format of LevelDB, behind the 7 bytes with which wandb begins its own."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # a whole record, or the last part of one
            yield parts
            parts = b""


def mlflow(folder: Path) -> dict[str, list[int]]:
    import mlflow as library

    client = library.tracking.MlflowClient()
    (run,) = client.search_runs(["0"])
    return {name: [one.step for one in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}


def trackio(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path in (folder / "trackio").glob("*.db"):
        with sqlite3.connect(path) as database:
            for step, text in database.execute("select step, metrics from metrics"):
                values = json.loads(text)
                for name in values:
                    found.setdefault(name, []).append(values.get("train/global_step", step))
    return found


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desk on which every library writes locally, and asks no network."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path),
        "TRACKIO_DIR": f"{tmp_path}/trackio",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    return tmp_path


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("read", [tensorboard, wandb, mlflow, trackio])
def test_what_is_logged_can_be_read_with_the_library_of_the_tracker(
    offline: Path, data: Path, read: Callable[[Path], dict[str, list[int]]], door: Any
) -> None:
    name = read.__name__
    if find_spec(name) is None:
        pytest.skip(f"the package {name} is not installed")

    # In a process of its own: the libraries remember their first run, and one with JAX's threads must not be forked.
    code = f"from pathlib import Path; from tests.journeys import test_trackers as here; here.{door.__name__}"
    ending = "; import wandb; wandb.finish()" if name == "wandb" else ""
    line = [sys.executable, "-c", f"{code}(Path({str(offline)!r}), {name!r}, Path({str(data)!r})){ending}"]
    offline_too = {"HF_HUB_OFFLINE": "1"} if name == "trackio" else {}  # for others, a program of another kind
    (ended,) = run_together([line], [environment(**offline_too)])
    assert ended.code == 0, ended.text
    found, until = read(offline), time.monotonic() + 10
    while not found and time.monotonic() < until:  # another process of the library may still be writing
        time.sleep(0.1)
        found = read(offline)
    losses = {tag: steps for tag, steps in found.items() if tag in {"train/loss", "loss"}}
    held_out = [tag for tag in found if tag.startswith(("eval/", "eval_"))]
    assert [sorted(set(steps))[-1] for steps in losses.values()] == [4], found
    assert held_out, found


@pytest.mark.parametrize("door", DOORS)
def test_every_training_writes_its_numbers_as_json_and_asks_no_tracker(offline: Path, data: Path, door: Any) -> None:
    door(offline, "none", data)
    lines = [json.loads(line) for line in (offline / "run/metrics.jsonl").read_text().splitlines()]
    assert {each["phase"] for each in lines} == {"train", "valid"}
    assert {each["step"] for each in lines if each["phase"] == "valid"} == {2, 4}
    assert all("loss" in each for each in lines if each["phase"] == "train" and "train_runtime" not in each)
    assert not [path for path in offline.rglob("*") if path.name in {"wandb", "mlruns", "mlflow.db", "trackio", "runs"}]
