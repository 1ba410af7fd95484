"""What every door gives: x-train, the Trainer and x-exp train a tiny model for four updates, each by its own API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.running.conftest import tiny
from xdpx import Trainer, TrainerCallback, TrainingArguments
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.datasets.meta import read_meta
from xdpx.experiments.running import run as run_experiment
from xdpx.run import main
from xdpx.runs.training import train
from xdpx.trainer.hooks import callbacks, listed
from xdpx.training.status import read_status
from xdpx.utils.owners import new_owner_id

__all__ = ["tiny"]

UPDATES = 4
Door = Callable[..., Any]
"""Trains into a folder, with what else is asked for."""

OWNER = """
import sys, time
from xdpx.utils.leases import Lease
with Lease(sys.argv[1]):
    print("owned", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed data of two classes."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "raw").mkdir()
    for name, count in (("train", 200), ("dev", 40)):
        rows = [f"{'good' if row % 2 else 'poor'} film {row % 7}\t{'ab'[row % 2]}\n" for row in range(count)]
        (folder / f"raw/{name}.txt").write_text("".join(rows))
    config = {"data_source": f"{folder}/raw", "data_dir": f"{folder}/data", "processor": "single", "loader": "single"}
    (folder / "prepro.json").write_text(json.dumps({**config, "tokenizer": "space", "max_len": 8}))
    assert main(["x-prepro", str(folder / "prepro.json")]) == 0
    return folder / "data"


SEEN: list[Any] = []


class Witness(TrainerCallback):
    """Notes what it hears and reads; asks for a checkpoint at update 1, and for the end after update 3."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        SEEN.append(("begin", args.max_steps, args.logging_steps, args.eval_steps, state.is_world_process_zero))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.fails_at:
            raise RuntimeError("the witness is gone")
        control.should_save = control.should_save or state.global_step == 1
        control.should_training_stop = state.global_step == 3

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" in logs:
            SEEN.append(("log", state.global_step, {"loss", "grad_norm", "learning_rate"} <= logs.keys()))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        SEEN.append(("evaluate", state.global_step, any(name.startswith("eval_") for name in metrics)))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        SEEN.append(("save", state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        SEEN.append(("end", state.global_step))


@pytest.fixture
def witness() -> Iterator[list[Any]]:
    """A callback that is registered as `witness`, and what it notes."""
    SEEN.clear()
    callbacks.register("witness")(Witness)
    yield SEEN
    callbacks._loaded.pop("witness", None)


class Line(torch.nn.Module):
    """One number to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": ((self.weight * x - labels) ** 2).mean()}


@pytest.fixture(params=["x-train", "Trainer", "x-exp"])
def door(request: pytest.FixtureRequest, data: Path, tiny: Any) -> Door:
    """One of the three doors."""

    def by_x_train(folder: Path, **keys: Any) -> None:
        config = {
            **read_meta(str(data)), "data_dir": str(data), "save_dir": str(folder), "model": "cls_cnn",
            "loss": "cross_entropy", "embedding_dim": 4, "hidden_size": 4, "max_update": UPDATES, "batch_size": 16,
            "learning_rate": 0.01, "log_interval": 1, "eval_interval": 2, "major_metric": "acc", "resume": "auto",
            "save_interval": 2, **keys,
        }  # fmt: skip
        train(resolve(config, "x-train", source="this test"))

    def by_trainer(folder: Path, callbacks: Sequence[Any] = (), **keys: Any) -> None:
        args = TrainingArguments(
            str(folder), max_steps=UPDATES, logging_steps=1, eval_strategy="steps", eval_steps=2, save_steps=2,
            disable_tqdm=True, **keys,
        )  # fmt: skip
        rows = [{"x": torch.tensor(float(row)), "labels": torch.tensor(2.0 * row)} for row in range(8)]
        Trainer(Line(), args, train_dataset=rows, eval_dataset=rows, callbacks=listed.build(callbacks)).train()

    def by_x_exp(folder: Path, **options: Any) -> None:
        experiment = tiny.Tiny(STEPS=UPDATES, EVAL=2, SAVE=2, LOG=1)
        run_experiment(experiment, job_log_dir=folder, eval_on_test=True, plots=False, **options)

    doors: dict[str, Door] = {"x-train": by_x_train, "Trainer": by_trainer, "x-exp": by_x_exp}
    return doors[request.param]


def test_a_folder_has_one_owner_while_it_is_trained_into_and_tells_how_that_stands(door: Door, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "owned\n"
        with pytest.raises(OSError, match=f"another run is using this folder \\(process {owner.pid} on "):
            door(folder)
        owner.kill()
    door(folder)  # the owner is dead: what it left is taken over
    status = read_status(str(folder))
    assert status
    assert (status.status, status.step, status.total_steps, status.until) == ("finished", UPDATES, UPDATES, UPDATES)
    assert status.fingerprint
    assert not (folder / ".lease").exists()


class Usurper(TrainerCallback):
    """Takes the folder over after update 3, as another run does that takes this one for dead; keeps what is in it."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            folder = Path(args.output_dir)
            (first,) = folder.glob(".lease/owner.json")
            owner = json.loads(first.read_text())
            usurper = {**owner, "id": new_owner_id(), "host": "elsewhere"}
            (folder / f".lease/after-{owner['id']}.json").write_text(json.dumps(usurper))
            SEEN.append(kept_in(folder))


def kept_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a run, but for what is logged."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    logs = ("train.log.tsv", "metrics.jsonl", "log.txt", "summaries", ".lease")
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(logs)}


def test_a_run_whose_folder_another_one_took_over_says_so_and_writes_nothing_more(
    door: Door, tmp_path: Path, witness: list[Any]
) -> None:
    callbacks.register("usurper")(Usurper)
    try:
        with pytest.raises(OSError, match=r"another run \(process .* on elsewhere.* has taken this folder over"):
            door(tmp_path / "run", callbacks=["usurper"])
    finally:
        callbacks._loaded.pop("usurper", None)
    assert any("checkpoint" in name for name in witness[0])
    assert kept_in(tmp_path / "run") == witness[0]


def test_a_folder_that_cannot_be_written_to_is_told_by_its_name_before_anything_is_trained(
    door: Door, tmp_path: Path, witness: list[Any]
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises((OSError, ConfigError), match=f"{tmp_path}/file"):
        door(tmp_path / "file/run", callbacks=["witness"])
    assert not witness


def test_a_callback_of_the_user_hears_the_same_and_is_obeyed(door: Door, tmp_path: Path, witness: list[Any]) -> None:
    door(tmp_path / "run", callbacks=["witness"])
    assert witness[0] == ("begin", UPDATES, 1, 2, True)
    assert [seen for seen in witness if seen[0] == "log"] == [("log", step, True) for step in (1, 2, 3)]
    assert ("evaluate", 2, True) in witness
    assert [seen for seen in witness if seen[0] == "save"][:2] == [("save", 1), ("save", 2)]
    assert witness[-1] == ("end", 3)
    status = read_status(str(tmp_path / "run"))
    assert status
    assert (status.status, status.step) == ("finished", 3)


def test_a_training_that_a_callback_breaks_has_failed_and_says_why(
    door: Door, tmp_path: Path, witness: list[Any]
) -> None:
    with pytest.raises(RuntimeError, match="the witness is gone"):
        door(tmp_path / "run", callbacks=[{"witness": {"fails_at": 2}}])
    status = read_status(str(tmp_path / "run"))
    assert status
    assert (status.status, status.reason) == ("failed", "RuntimeError: the witness is gone")
    assert witness[-1][0] != "end"
    assert not (tmp_path / "run/.lease").exists()


def test_a_tracker_shows_every_logged_loss(door: Door, tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    door(tmp_path / "run", report_to=["tensorboard", "jsonl"])
    (folder,) = (tmp_path / "run/runs").iterdir()
    events = reading.EventAccumulator(str(folder))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]
    lines = tmp_path / "run/logs.jsonl"
    assert [json.loads(line)["step"] for line in lines.read_text().splitlines() if '"loss"' in line] == [1, 2, 3, 4]
