"""The hooks on a whole training: everything that the original's callbacks see, ours see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import xdpx

EVENTS = [name for name in dir(transformers.TrainerCallback) if name.startswith("on_")]
CASES = {
    "steps": {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "logging_steps": 1},
    "epochs": {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"},
    "accumulation": {"gradient_accumulation_steps": 3, "logging_first_step": True, "logging_steps": 2},
    "shares": {"max_steps": 5, "logging_steps": 0.5, "save_steps": 0.4, "eval_strategy": "steps", "eval_steps": 0.3},
    "delay": {"eval_strategy": "epoch", "eval_delay": 2, "save_strategy": "no", "eval_on_start": True},
}


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any = None) -> Any:
        found = self.layer(x)
        return found if labels is None else (((found - labels) ** 2).mean(), found)


ROWS = [{"x": torch.tensor([row / 8]), "labels": torch.tensor([row / 4 + 1])} for row in range(14)]


def _writing_down(base: type) -> tuple[Any, list[Any]]:
    heard: list[Any] = []

    def hear(event: str) -> Any:
        def on(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            told = sorted(set(kwargs) - {"tokenizer"})
            heard.append((event, state.global_step, round(state.epoch, 6), tuple(vars(control).values()), told))

        return on

    return type("WritingDown", (base,), {event: hear(event) for event in EVENTS})(), heard


def _train(library: Any, folder: Path, callback: Any = None, **changes: Any) -> Any:
    settings = {"num_train_epochs": 2, "report_to": "none", "use_cpu": True, "disable_tqdm": True, **changes}
    args = library.TrainingArguments(output_dir=str(folder), per_device_train_batch_size=4, **settings)
    callbacks = [] if callback is None else [callback]
    trainer = library.Trainer(Line(), args, train_dataset=ROWS, eval_dataset=ROWS[:5], callbacks=callbacks)
    trainer.train()
    return trainer


@pytest.mark.parametrize("case", CASES)
def test_events_come_in_the_order_of_the_original_with_the_same_flags_and_things(case: str, tmp_path: Path) -> None:
    ours, our_events = _writing_down(xdpx.TrainerCallback)
    theirs, their_events = _writing_down(transformers.TrainerCallback)
    _train(xdpx, tmp_path / "ours", ours, **CASES[case])
    _train(transformers, tmp_path / "theirs", theirs, **CASES[case])
    assert our_events == their_events


def test_the_same_is_logged_as_the_original_logs(tmp_path: Path) -> None:
    ours, theirs = (_train(library, tmp_path / library.__name__, **CASES["steps"]) for library in (xdpx, transformers))
    timed = ("runtime", "per_second", "preparation_time", "total_flos", "data_wait_share")
    for one, other in zip(ours.state.log_history, theirs.state.log_history, strict=True):
        assert [name for name in one if not name.endswith(timed)] == [
            name for name in other if not name.endswith(timed)
        ]
        assert all(one[name] == pytest.approx(other[name], abs=1e-6) for name in one if not name.endswith(timed))


def test_a_failing_callback_is_named_on_the_way_out(tmp_path: Path) -> None:
    class Failing(xdpx.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as failure:
        _train(xdpx, tmp_path, Failing())
    assert "From Failing.on_step_end, a callback, at step 1." in failure.value.__notes__


def test_trackers_hear_of_a_whole_training(tmp_path: Path) -> None:
    heard: list[int] = []
    trainer = _train(
        xdpx,
        tmp_path,
        logging_steps=2,
        report_to=["jsonl", lambda values, step: heard.append(step)],
        save_strategy="no",
    )
    rows = [json.loads(line) for line in (tmp_path / "logs.jsonl").read_text().splitlines()]
    assert (
        [row["step"] for row in rows] == heard == [row["step"] for row in trainer.state.log_history] == [2, 4, 6, 8, 8]
    )
    assert [row.get("loss") for row in rows] == [row.get("loss") for row in trainer.state.log_history]


@pytest.mark.parametrize("restored", [True, False])
def test_a_resumed_training_restores_the_state_of_callbacks_when_asked(restored: bool, tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "metric_for_best_model": "eval_loss"}
    callback = xdpx.EarlyStoppingCallback(5)
    callback.early_stopping_patience_counter = 3
    callback.on_evaluate = lambda *_, **__: None
    _train(xdpx, tmp_path, callback, **settings)
    again = xdpx.EarlyStoppingCallback(9)
    args = xdpx.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True, disable_tqdm=True,
        restore_callback_states_from_checkpoint=restored, **settings,
    )  # fmt: skip
    trainer = xdpx.Trainer(Line(), args, train_dataset=ROWS, eval_dataset=ROWS[:5], callbacks=[again])
    trainer.train(resume_from_checkpoint=True)
    assert again.early_stopping_patience == (5 if restored else 9)
