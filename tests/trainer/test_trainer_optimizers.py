"""A Trainer trains with every optimizer of the table whose package is installed, on every schedule."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import xdpx
from xdpx.optimizers import NEEDED, optimizers
from xdpx.optimizers.lr_schedulers import OnMetric, lr_schedulers

HERE = [name for name in optimizers if name != "pair" and all(map(find_spec, NEEDED.get(name, ())))]
KEYS = {
    "warmup_stable_decay": {"num_decay_steps": 2},
    **dict.fromkeys(("cosine_with_min_lr", "cosine_warmup_with_min_lr"), {"min_lr": 1e-3}),
}


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.layer = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(torch.tanh(self.inner(x))).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def losses(folder: Path, **changes: Any) -> list[float]:
    torch.manual_seed(0)
    rows = [{"x": x, "labels": x.sum()} for x in torch.randn(64, 8)]
    keys: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "save_strategy": "no"}
    keys |= {"logging_steps": 1, "num_train_epochs": 2, "learning_rate": 1e-2, **changes}
    trainer = xdpx.Trainer(Line(), xdpx.TrainingArguments(str(folder), **keys), train_dataset=rows, eval_dataset=rows)
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize("name", HERE)
def test_every_optimizer_that_is_installed_lowers_the_loss(name: str, tmp_path: Path) -> None:
    low = {"optim_target_modules": "all-linear", "optim_args": "rank=2"} if "galore" in name or "apollo" in name else {}
    if name in {"galore_adamw_8bit", "galore_adamw_8bit_layerwise", "adalomo"} and not torch.cuda.is_available():
        pytest.skip("it needs a GPU")
    found = losses(tmp_path, optim=name, **low)
    assert sum(found[-4:]) < sum(found[:4])


@pytest.mark.parametrize("name", list(lr_schedulers))
def test_every_schedule_trains(name: str, tmp_path: Path) -> None:
    scored = {"eval_strategy": "epoch"} if issubclass(lr_schedulers[name], OnMetric) else {}
    found = losses(tmp_path, lr_scheduler_type=name, lr_scheduler_kwargs=KEYS.get(name, {}), warmup_steps=2, **scored)
    assert sum(found[-4:]) < sum(found[:4])


def test_optimizer_and_schedule_of_x_train_go_on_from_a_checkpoint_exactly(tmp_path: Path) -> None:
    def trained(folder: str, **changes: Any) -> list[float]:
        keys = {"optim": "adam", "lr_scheduler_type": "one_cycle", "lr_scheduler_kwargs": {"cycle_momentum": True}}
        torch.manual_seed(0)
        rows = [{"x": x, "labels": x.sum()} for x in torch.randn(64, 8)]
        args = xdpx.TrainingArguments(
            str(tmp_path / folder), use_cpu=True, disable_tqdm=True, report_to="none", save_steps=5, logging_steps=1,
            num_train_epochs=2, **keys,
        )  # fmt: skip
        trainer = xdpx.Trainer(Line(), args, train_dataset=rows)
        trainer.train(**changes)
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    whole = trained("whole")
    assert trained("again", resume_from_checkpoint=str(tmp_path / "whole/checkpoint-5")) == whole


def test_what_would_come_too_late_for_lomo_is_refused_beforehand(tmp_path: Path) -> None:
    more = {"gradient_accumulation_steps": 2, "nonfinite_steps": "skip"}
    args = xdpx.TrainingArguments(str(tmp_path), use_cpu=True, optim="lomo", **more)
    with pytest.raises(
        ValueError, match="but gradient_accumulation_steps is 2, nonfinite_steps is 'skip'. Change that"
    ):
        xdpx.Trainer(Line(), args, train_dataset=[])
