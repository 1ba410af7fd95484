"""Searching with trials in stages: promotion resumes exactly, a killed search goes on, ranks do the same."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from xdpx import Trainer, TrainingArguments
from xdpx.config.faults import ConfigError
from xdpx.trainer.hooks.events import TrainerCallback

RATES = {"learning_rate": {"type": "float", "values": [1e-3, 0.3], "log": True}}


class Net(nn.Module):
    """Dropout lets the random generators count."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.Dropout(0.2), nn.Linear(width, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layers(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def searcher(folder: Path, *, init: Any = lambda: Net(), callbacks: Any = (), **changes: Any) -> Trainer:
    rows = [{"x": torch.tensor([i / 8.0]), "labels": torch.tensor(i / 4.0)} for i in range(20)]
    values = {"num_train_epochs": 3, "per_device_train_batch_size": 4, "save_strategy": "no", **changes}
    args = TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **values)
    return Trainer(args=args, train_dataset=rows, eval_dataset=rows, model_init=init, callbacks=list(callbacks))


def search(trainer: Trainer, **options: Any) -> Any:
    staged = {} if options else {"algorithm": "asha", "eta": 3, "assess_start_step": 0.2}
    return trainer.hyperparameter_search(RATES, n_trials=6, backend="xdpx", **{**staged, **options})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    newest = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    return load_file(newest / "model.safetensors")


def test_a_promoted_trial_has_the_bits_of_one_that_was_never_interrupted(tmp_path: Path) -> None:
    best = search(searcher(tmp_path / "staged"))
    trial = next(each for each in reversed(best.run_summary) if each.verdict == "finished").trial
    assert sum(each.trial == trial and each.verdict == "promoted" for each in best.run_summary)
    values = json.loads((tmp_path / f"staged/run-{trial}/checkpoint-15/trainer_state.json").read_text())["trial_params"]
    searcher(tmp_path / "whole", save_strategy="epoch", **values).train()
    staged, whole = weights(tmp_path / f"staged/run-{trial}"), weights(tmp_path / "whole")
    assert all(torch.equal(staged[name], whole[name]) for name in whole)


class Killer(TrainerCallback):
    """Ends the process by SIGKILL at an event, after so many of them."""

    def __init__(self, event: str, count: int) -> None:
        self.left = count

        def heard(*given: Any, **named: Any) -> None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(self, event, heard)


def killed(folder: Path, event: str, count: int) -> None:
    process = os.fork()
    if process == 0:
        search(searcher(folder, callbacks=[Killer(event, count)]))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def test_a_search_that_is_killed_anywhere_decides_and_trains_the_same(tmp_path: Path) -> None:
    calm = search(searcher(tmp_path / "calm"))
    for event, count in (("on_step_end", 7), ("on_save", 1), ("on_evaluate", 2), ("on_step_end", 3)):
        killed(tmp_path / "killed", event, count)
    again = search(searcher(tmp_path / "killed"))
    assert (again.run_id, again.objective, again.run_summary) == (calm.run_id, calm.objective, calm.run_summary)
    for run in (tmp_path / "calm").glob("run-*"):
        mine, whole = weights(tmp_path / "killed" / run.name), weights(run)
        assert all(torch.equal(mine[name], whole[name]) for name in whole)


def test_a_finished_search_trains_nothing_when_it_is_called_again(tmp_path: Path) -> None:
    first = search(searcher(tmp_path), algorithm="full")
    steps: list[int] = []

    class Counting(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            steps.append(state.global_step)

    again = search(searcher(tmp_path, callbacks=[Counting()]), algorithm="full")
    assert (again[:3], steps) == (first[:3], [])
    with pytest.raises(ConfigError, match="arguments"):
        search(searcher(tmp_path, weight_decay=0.1), algorithm="full")


def test_what_cannot_be_searched_for_is_refused_together_before_training(tmp_path: Path) -> None:
    space = {
        "learnin_rate": {"type": "float", "values": [0.1, 1.0]},
        "max_steps": {"type": "int", "values": [1, 2]},
    }
    with pytest.raises(ConfigError) as refused:
        searcher(tmp_path, save_only_model=True).hyperparameter_search(space, backend="xdpx", direction="up")
    for word in ("learning_rate", "max_steps", "save_only_model", "direction"):
        assert word in str(refused.value)
    assert not list(tmp_path.glob("run-*"))
    with pytest.raises(ValueError, match="not a function"):
        searcher(tmp_path).hyperparameter_search(lambda trial: {}, backend="xdpx")


def test_a_run_of_something_else_in_the_folder_is_not_continued(tmp_path: Path) -> None:
    searcher(tmp_path / "run-0", save_strategy="epoch").train()
    with pytest.raises(ConfigError, match="run-0"):
        search(searcher(tmp_path))


def test_values_reach_the_model_and_no_value_stays_from_another_trial(tmp_path: Path) -> None:
    space = {
        "width": {"type": "categorical", "values": [2, 8]},
        "weight_decay": {"type": "categorical", "values": [0.5], "when": {"width": 2}},
    }
    seen: dict[int, float] = {}

    class Noting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen[kwargs["model"].layers[0].out_features] = args.weight_decay

    trainer = searcher(tmp_path, init=lambda trial=None: Net(trial["width"] if trial else 4), callbacks=[Noting()])
    trainer.hyperparameter_search(space, n_trials=2, backend="xdpx", algorithm="full", tuner="grid")
    assert seen == {2: 0.5, 8: 0.0}
    assert trainer.args.weight_decay == 0.0


def test_batches_of_another_size_are_compared_at_equal_samples(tmp_path: Path) -> None:
    space = {"per_device_train_batch_size": {"type": "categorical", "values": [2, 4]}}
    ends: dict[int, int] = {}

    class Noting(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            ends[args.per_device_train_batch_size] = state.global_step

    trainer = searcher(tmp_path, max_steps=10, callbacks=[Noting()])
    trainer.hyperparameter_search(space, n_trials=2, backend="xdpx", algorithm="full", tuner="grid")
    assert ends == {4: 10, 2: 20}


def test_a_trial_whose_loss_is_not_finite_fails_alone(tmp_path: Path) -> None:
    space = {"learning_rate": {"type": "categorical", "values": [1e30, 0.01]}}
    trainer = searcher(tmp_path, nonfinite_steps="raise")
    best = trainer.hyperparameter_search(space, n_trials=2, backend="xdpx", algorithm="full", tuner="grid")
    assert best.hyperparameters == {"learning_rate": 0.01}
    assert [each.verdict for each in best.run_summary] == ["begun", "failed", "begun", "finished"]
