"""Train on two processes, one of which requests something: `asking_pair.py FOLDER` writes FOLDER/rank-<n>.json."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork_ranks
from tests.trainer.signalled_pair import Noisy
from xdpx import Trainer, TrainerCallback, TrainingArguments


class Ask(TrainerCallback):
    """Sets flags of the control at some steps: {event: {step: flag}}."""

    def __init__(self, asked: dict[str, dict[int, str]]) -> None:
        self.asked = asked

    def _ask(self, event: str, state: Any, control: Any) -> None:
        flag = self.asked.get(event, {}).get(state.global_step)
        if flag:
            setattr(control, flag, True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._ask("step", state, control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._ask("log", state, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._ask("evaluate", state, control)


ASKED: dict[int, list[dict[str, dict[int, str]]]] = {
    0: [{"step": {2: "should_save", 11: "should_epoch_stop"}, "evaluate": {3: "should_save"}}],
    1: [{"step": {3: "should_evaluate"}, "log": {5: "should_evaluate", 15: "should_training_stop"}}],
}


def train(rank: int) -> None:
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(64)]
    args = TrainingArguments(
        "out", use_cpu=True, disable_tqdm=True, save_strategy="steps", save_steps=100, logging_steps=5, ddp_timeout=60,
        per_device_train_batch_size=2, num_train_epochs=4, eval_strategy="steps", eval_steps=100, report_to="none",
        metric_for_best_model="mine",
    )  # fmt: skip
    trainer = Trainer(
        Noisy(), args, train_dataset=rows, eval_dataset=rows[:4], callbacks=[Ask(asked) for asked in ASKED[rank]],
        compute_metrics=lambda _: {"mine": float(rank)},
    )  # fmt: skip
    trainer.train()
    history = [row for row in trainer.state.log_history if "eval_mine" in row]
    told = {
        "step": trainer.state.global_step, "epoch": trainer.state.epoch, "best": trainer.state.best_metric,
        "evaluated": [row["step"] for row in history], "weights": trainer.model.first.weight.tolist(),
        "searched": search(args, rows) if importlib.util.find_spec("optuna") else None,
    }  # fmt: skip
    Path(f"rank-{rank}.json").write_text(json.dumps(told), encoding="utf-8")


def search(args: TrainingArguments, rows: list[dict[str, Any]]) -> list[int]:
    """Search with Optuna, whose second trial is pruned and whose third is the last; return the steps of each trial."""
    import optuna

    class Second(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            return trial.number == 1

    def space(trial: Any) -> dict[str, Any]:
        if trial.number == 2 and hasattr(trial, "study"):  # the first process
            trial.study.stop()
        return {"learning_rate": trial.suggest_float("learning_rate", 0.01, 0.1)}

    steps = list[int]()

    class Count(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            steps.append(state.global_step)

    changed = {"max_steps": 2, "eval_steps": 1, "save_strategy": "no", "metric_for_best_model": None}
    args = dataclasses.replace(args, output_dir="searched", **changed)
    trainer = Trainer(None, args, model_init=Noisy, train_dataset=rows, eval_dataset=rows[:4], callbacks=[Count()])
    trainer.hyperparameter_search(space, n_trials=9, backend="optuna", pruner=Second())
    return steps


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    import_before_forking(*SHARDING, *SAVING)
    sys.exit(max(fork_ranks(train, 2, "told")))
