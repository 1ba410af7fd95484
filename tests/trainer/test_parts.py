"""What users set on a Trainer is what its functions work with, and they see what these set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from xdpx import Trainer, TrainingArguments
from xdpx.trainer.parts import TrainerRun


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, **more: Any) -> dict[str, torch.Tensor]:
        y = self.layer(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


ROWS = [{"x": torch.tensor([float(i)]), "labels": i} for i in range(8)]


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    return TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, max_steps=2, save_strategy="no", **more)


def test_what_is_said_of_the_loss_after_building_holds_when_it_is_called(tmp_path: Path) -> None:
    trainer = Trainer(Line(), arguments(tmp_path))
    batch = {"x": torch.ones(2, 1), "labels": torch.tensor([1, 2])}
    assert trainer.loss_calls.count([batch]) == 2
    trainer.model_accepts_loss_kwargs = False
    assert trainer.loss_calls.count([batch]) is None


def test_names_of_labels_that_are_set_after_building_are_those_that_come_back(tmp_path: Path) -> None:
    trainer = Trainer(Line(), arguments(tmp_path))
    trainer.label_names = ["labels", "x"]
    assert [len(each) for each in trainer.predict(ROWS).label_ids] == [8, 8]


def test_an_optimizer_and_arguments_that_are_set_by_hand_are_those_that_train(tmp_path: Path) -> None:
    trainer = Trainer(Line(), arguments(tmp_path / "first"), train_dataset=ROWS)
    trainer.optimizer = own = torch.optim.SGD(trainer.model.parameters(), lr=0.0)
    trainer.args = arguments(tmp_path / "second", gradient_accumulation_steps=2)
    before = trainer.model.layer.weight.clone()
    trainer.train()
    assert trainer.optimizer is own
    assert trainer.current_gradient_accumulation_steps == 1  # one batch is all that the data has
    assert torch.equal(trainer.model.layer.weight, before)
    assert trainer.callback_handler.optimizer is own


def test_a_subclass_may_set_attributes_before_it_calls_the_constructor(tmp_path: Path) -> None:
    class Early(Trainer):
        def __init__(self, *given: Any, **named: Any) -> None:
            self.is_in_train = True
            self.run = "a name in a tracker"
            super().__init__(*given, **named)

    trainer = Early(Line(), arguments(tmp_path), train_dataset=ROWS)
    trainer.train()
    assert (trainer.run, trainer.is_in_train, trainer.state.global_step) == ("a name in a tracker", False, 2)


def test_two_trainers_share_nothing(tmp_path: Path) -> None:
    first, second = (Trainer(Line(), arguments(tmp_path)) for _ in range(2))
    first.control.should_log = True
    first.label_names = []
    assert not second.control.should_log
    assert second.label_names == ["labels"]
    assert TrainerRun().search is not TrainerRun().search
