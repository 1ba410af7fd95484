"""A run of the Trainer that is told to end: it saves, leaves with the code that means "continue me", and continues."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.processes import fork
from xdpx import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from xdpx.trainer.hooks.state import ExportableState
from xdpx.training import preemption
from xdpx.training.preemption import EXIT_CODE


@pytest.fixture(autouse=True)
def nothing_handles_the_signal() -> Generator[None]:
    """Take away the handler that another test's library left (Ray): the Trainer would leave the signal to it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


class Told(TrainerCallback):
    """Sends a signal at an event, once."""

    def __init__(self, event: str, step: int) -> None:
        self.event, self.step = event, step
        events = (
            "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_epoch_end", "on_prediction_step",
            "on_save",
        )  # fmt: skip
        for name in events:
            setattr(self, name, partial(self.heard, name))

    def heard(self, event: str, args: Any, state: Any, control: Any, **_: Any) -> None:
        if (event, state.global_step) == (self.event, self.step):
            self.event = ""
            os.kill(os.getpid(), signal.SIGTERM)


class Doubtful(nn.Module):
    """A line with dropout, so that a random number drawn too often or too seldom shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        y = self.layer(nn.functional.dropout(x, 0.5, self.training)).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


def ended(*folders: Path, kill_at: int, strategy: str = "epoch") -> tuple[int, list[list[float]]]:
    """Train into one folder after another in a process that gets a signal; return its exit code, and all losses."""
    told = folders[0].with_suffix(".json")

    def work() -> None:
        losses = []
        for folder in folders:
            torch.manual_seed(0)
            rows = [{"x": torch.tensor([float(i % 5)]), "labels": torch.tensor(float(i % 5))} for i in range(32)]
            args = TrainingArguments(
                str(folder), use_cpu=True, disable_tqdm=True, save_strategy=strategy, logging_steps=1
            )
            trainer = Trainer(Doubtful(), args, train_dataset=rows, callbacks=[Told("on_step_begin", kill_at)])
            trainer.train(resume_from_checkpoint=(folder / "checkpoint-6").is_dir() or None)
            losses.append([row["loss"] for row in trainer.state.log_history if "loss" in row])
        told.write_text(json.dumps(losses))

    status = os.waitpid(fork(work, folders[0].with_suffix(".txt")), 0)[1]
    return os.waitstatus_to_exitcode(status), json.loads(told.read_text()) if told.exists() else []


def test_a_run_that_is_told_to_end_saves_the_step_it_was_at_and_is_continued_exactly(tmp_path: Path) -> None:
    assert ended(tmp_path / "stopped", kill_at=5) == (EXIT_CODE, [])
    assert (tmp_path / "stopped" / "checkpoint-6" / "trainer_state.json").exists()
    code, (continued, whole) = ended(tmp_path / "stopped", tmp_path / "whole", kill_at=-1)
    assert code == 0
    assert len(whole) == 12
    assert continued == whole


def test_a_run_that_saves_nothing_ends_at_once_as_it_always_did(tmp_path: Path) -> None:
    assert ended(tmp_path / "out", kill_at=5, strategy="no") == (-signal.SIGTERM, [])


def trained(
    folder: Path, *callbacks: Any, data: Any = None, kind: type[Trainer] = Trainer, sets: int = 1, **settings: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Train, and go on after each end that asks for it; return what was logged, and the weights."""
    rows = [{"x": torch.tensor([float(i % 5)]), "labels": torch.tensor(float(i % 5))} for i in range(16)]
    held_out = rows[:8] if sets == 1 else {"a": rows[:4], "b": rows[4:8]}
    arguments: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "num_train_epochs": 3, **settings}
    while True:
        torch.manual_seed(0)
        random.seed(0)
        args = TrainingArguments(str(folder), per_device_train_batch_size=4, report_to=[], **arguments)
        trainer = kind(Doubtful(), args, train_dataset=data or rows, eval_dataset=held_out, callbacks=[*callbacks])
        saved = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        try:
            trainer.train(resume_from_checkpoint=str(saved[-1]) if saved else None)
        except SystemExit:
            continue
        kept = {"epoch", "step", "loss", "grad_norm", "learning_rate", "eval_loss", "eval_a_loss", "eval_b_loss"}
        rows_logged = [{key: row[key] for key in row if key in kept} for row in trainer.state.log_history[:-1]]
        return rows_logged, {name: weight.tolist() for name, weight in trainer.model.state_dict().items()}


def test_a_signal_at_the_end_of_an_epoch_changes_neither_evaluations_nor_logs_nor_weights(tmp_path: Path) -> None:
    each = dict.fromkeys(("eval_strategy", "logging_strategy", "save_strategy"), "epoch")
    whole = trained(tmp_path / "whole", **each)
    assert [row["step"] for row in whole[0] if "eval_loss" in row] == [4, 8, 12]
    events = [("on_step_end", 2), ("on_step_end", 4), ("on_epoch_end", 4), ("on_prediction_step", 4), ("on_save", 4)]
    for event, step in [*events, ("on_epoch_begin", 4), ("on_step_end", 12)]:
        assert trained(tmp_path / f"{event}_{step}", Told(event, step), **each) == whole, (event, step)


class ToldInEvaluation(Trainer):
    """Gets a signal at a batch of its evaluations, counted from 1. These draw random numbers."""

    at = 0

    def prediction_step(self, *args: Any, **options: Any) -> Any:
        ToldInEvaluation.at -= 1
        if ToldInEvaluation.at == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        torch.rand(1)
        return super().prediction_step(*args, **options)


CUT: dict[str, dict[str, Any]] = {
    "epoch": dict.fromkeys(("eval_strategy", "logging_strategy", "save_strategy"), "epoch"),
    "best": {"eval_strategy": "steps", "eval_steps": 3, "logging_steps": 2, "save_strategy": "best",
             "metric_for_best_model": "loss"},
    "saved before the end of the epoch": {"eval_strategy": "epoch", "save_steps": 4, "logging_steps": 3},
    "early": {**dict.fromkeys(("eval_strategy", "logging_strategy", "save_strategy"), "epoch"),
              "metric_for_best_model": "loss", "load_best_model_at_end": True, "greater_is_better": True,
              "restore_callback_states_from_checkpoint": True},
    "two sets": {"sets": 2, "eval_strategy": "steps", "eval_steps": 3, "logging_steps": 2, "save_strategy": "best",
                 "metric_for_best_model": "b_loss"},
    "two sets at the start": {"sets": 2, "eval_on_start": True, "eval_strategy": "epoch", "logging_steps": 3},
}  # fmt: skip


@pytest.mark.parametrize("case", CUT)
def test_a_signal_ends_an_evaluation_which_comes_first_when_the_run_goes_on_to_the_same_end(
    tmp_path: Path, case: str
) -> None:
    def train(name: str) -> Any:
        callbacks = [EarlyStoppingCallback(1)] if case == "early" else []
        folder = tmp_path / name
        found = trained(folder, *callbacks, kind=ToldInEvaluation, per_device_eval_batch_size=2, **CUT[case])
        newest = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        state = json.loads((newest / "trainer_state.json").read_text())
        kept = ("best_metric", "best_global_step", "global_step", "stateful_callbacks")
        return found, newest.name, {name: state[name] for name in kept}

    ToldInEvaluation.at = 0
    whole = train("whole")
    for at in (1, 2, 3, 7, 8):  # an evaluation has four batches; where there are two sets, the second begins at 3
        ToldInEvaluation.at = at
        assert train(str(at)) == whole, at


class Leaves(TrainerCallback):
    """Ends the first two epochs early."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_epoch_stop = state.global_step in {2, 5}


def test_a_signal_or_a_kill_where_a_callback_ends_an_epoch_changes_nothing(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "eval_strategy": "steps", "eval_steps": 2, "logging_steps": 1, "save_steps": 5, "kind": ToldInEvaluation,
    }  # fmt: skip
    whole = trained(tmp_path / "whole", Leaves(), **settings)
    assert [row["step"] for row in whole[0] if "loss" in row] == [*range(1, 10)]
    assert trained(tmp_path / "told", Leaves(), Told("on_step_end", 2), **settings) == whole
    ToldInEvaluation.at = 2  # in the evaluation after update 2
    assert trained(tmp_path / "cut", Leaves(), **settings) == whole
    assert ToldInEvaluation.at < 0
    for later in (tmp_path / "whole").glob("checkpoint-[69]"):
        shutil.rmtree(later)  # as after a kill
    assert trained(tmp_path / "whole", Leaves(), **settings) == whole


def test_a_checkpoint_of_an_epoch_that_a_callback_ended_early_goes_on_with_the_next_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "eval_strategy": "epoch", "save_strategy": "epoch", "logging_steps": 1, "kind": ToldInEvaluation,
    }  # fmt: skip
    whole = trained(tmp_path, Leaves(), **settings)
    assert [row["step"] for row in whole[0] if "eval_loss" in row] == [2, 5, 9]
    for kept in ([2, 5], [2]):
        for folder in tmp_path.glob("checkpoint-*"):
            if int(folder.name.removeprefix("checkpoint-")) not in kept:
                shutil.rmtree(folder)  # as after a kill
        assert trained(tmp_path, Leaves(), **settings) == whole


class Counting(TrainerCallback, ExportableState):
    """Counts the batches of evaluations that it hears of."""

    def __init__(self) -> None:
        self.heard = 0

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.heard += 1

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"heard": self.heard}}


def test_callbacks_are_as_before_an_evaluation_that_was_cut_short_and_nothing_is_logged_of_it(tmp_path: Path) -> None:
    settings = {**CUT["epoch"], "use_cpu": True, "num_train_epochs": 1, "report_to": [], "disable_tqdm": True}
    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor(float(i))} for i in range(8)]
    args = TrainingArguments(str(tmp_path), per_device_eval_batch_size=2, **settings)
    ToldInEvaluation.at = 3
    trainer = ToldInEvaluation(Doubtful(), args, train_dataset=rows, eval_dataset=rows, callbacks=[Counting()])
    with pytest.raises(SystemExit) as leaving:
        trainer.train()
    assert leaving.value.code == EXIT_CODE
    assert ToldInEvaluation.at == 0
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["status"] == "preempted"
    assert status["reason"] == "interrupted by SIGTERM after step 1, in its evaluation, which will begin again"
    state = json.loads((tmp_path / "checkpoint-1/trainer_state.json").read_text())
    assert state["stateful_callbacks"]["Counting"]["attributes"] == {"heard": 0}
    assert not any("eval_loss" in row for row in state["log_history"])


def test_a_signal_in_the_second_of_two_sets_ends_it_and_keeps_what_is_known_of_the_first(tmp_path: Path) -> None:
    settings = {**CUT["two sets at the start"], "use_cpu": True, "report_to": [], "disable_tqdm": True}
    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor(float(i))} for i in range(8)]
    sets = dict.fromkeys(("a", "b")[: settings.pop("sets")], rows)
    args = TrainingArguments(str(tmp_path), per_device_eval_batch_size=2, **settings)
    ToldInEvaluation.at = 5
    with pytest.raises(SystemExit):
        ToldInEvaluation(Doubtful(), args, train_dataset=rows, eval_dataset=sets).train()
    assert ToldInEvaluation.at == 0  # no batch followed
    state = json.loads((tmp_path / "checkpoint-0/trainer_state.json").read_text())
    assert [set(row) & {"eval_a_loss", "eval_b_loss"} for row in state["log_history"]] == [{"eval_a_loss"}]


@pytest.mark.parametrize("strategy", ["epoch", "steps"])
def test_a_run_that_is_stopped_again_before_its_first_update_keeps_its_place(tmp_path: Path, strategy: str) -> None:
    each: dict[str, Any] = dict.fromkeys(("eval_strategy", "logging_strategy", "save_strategy"), strategy)
    each |= dict.fromkeys(("eval_steps", "logging_steps", "save_steps"), 2) if strategy == "steps" else {}
    whole = trained(tmp_path / "whole", **each)
    for step, again in ((2, "on_train_begin"), (4, "on_train_begin"), (4, "on_save"), (5, "on_epoch_begin")):
        told = Told("on_step_end", step), Told(again, step)
        assert trained(tmp_path / f"{step}_{again}", *told, **each) == whole, (step, again)


def test_a_checkpoint_at_the_last_update_of_an_epoch_is_followed_by_what_ends_the_epoch(tmp_path: Path) -> None:
    settings = {"eval_strategy": "epoch", "logging_steps": 3, "save_steps": 4}
    folder = tmp_path / "killed"
    whole = trained(folder, **settings)
    for number in (8, 12):
        shutil.rmtree(folder / f"checkpoint-{number}")
    assert trained(folder, **settings) == whole


class Slow(torch.utils.data.Dataset[Any]):
    """Draws random numbers for each sample; sends a signal, and then hangs, at the sample that is read as such."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.rand(1) + random.random()
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        return {"x": index % 5 + noise, "labels": torch.tensor(float(index % 5))}


class OwnOrder(Trainer):
    """Draws its order from a generator of its own."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return torch.utils.data.RandomSampler(train_dataset, generator=torch.Generator().manual_seed(5))


class OwnLoader(Trainer):
    """Makes its loader itself."""

    def get_train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=4, shuffle=True)


@pytest.mark.parametrize("kind", [Trainer, OwnOrder, OwnLoader])
def test_a_signal_that_cuts_off_the_reading_within_an_update_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Trainer]
) -> None:
    monkeypatch.setattr(preemption, "GRACE_SECONDS", 0.05)
    settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 2, "logging_steps": 1}
    whole = trained(tmp_path / "whole", data=Slow(-1), kind=kind, **settings)
    for at in (1, 6, 8, 11, 16, 17, 22, 32):  # 17 begins the second epoch
        assert trained(tmp_path / str(at), data=Slow(at), kind=kind, **settings) == whole, at
