"""Arguments and functions that change nothing are told of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.test_search import Classes
from xdpx import Seq2SeqTrainingArguments, Trainer, TrainingArguments
from xdpx.trainer import idle


class Own(Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class Smoothing(Own):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        assert self.label_smoother is not None
        return self.label_smoother(model(inputs["x"]), inputs["labels"])


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    common = {"use_cpu": True, "disable_tqdm": True, "max_steps": 1, "save_strategy": "no"}
    return TrainingArguments(str(folder), **(common | changes))


def trainer(folder: Path, kind: type[Trainer] = Trainer, **changes: Any) -> Trainer:
    own = {name: changes.pop(name) for name in ("compute_loss_func", "compute_metrics") if name in changes}
    rows = [{"x": torch.ones(1), "labels": i % 2} for i in range(4)]
    return kind(Classes(), arguments(folder, **changes), train_dataset=rows, eval_dataset=rows, **own)


@pytest.mark.parametrize(
    ("changes", "idle_one"),
    [
        ({"eval_steps": 3}, "eval_steps"),
        ({"eval_steps": 3, "eval_strategy": "steps"}, None),
        ({"eval_delay": 3}, "eval_delay"),
        ({"save_steps": 3, "save_strategy": "epoch"}, "save_steps"),
        ({"save_steps": 3}, None),
        ({"logging_steps": 3, "logging_strategy": "epoch"}, "logging_steps"),
        ({"logging_steps": 3, "logging_strategy": "epoch", "eval_strategy": "steps"}, None),
        ({"gradient_checkpointing_kwargs": {"every_n_layers": 2}}, "activation_checkpointing_kwargs"),
        ({"length_column_name": "size"}, "length_column_name"),
        ({}, None),
    ],
)
def test_arguments_that_another_one_switches_off_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], idle_one: str | None
) -> None:
    told: list[str] = []
    monkeypatch.setattr(idle.log, "warning", lambda text, **_: told.append(text))
    idle.warn_of_idle(arguments(tmp_path, **changes))
    assert [text.partition(":")[0] for text in told] == ([idle_one] if idle_one else [])


def test_a_sampler_that_nothing_reads_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idle.warn_of_idle(Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, sortish_sampler=True))
    assert "sortish_sampler: has no effect" in capsys.readouterr().err


def test_defaults_that_a_library_has_changed_are_not_taken_for_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @dataclass
    class Config(TrainingArguments):
        logging_steps: float = 10

    idle.warn_of_idle(Config(str(tmp_path), use_cpu=True, logging_strategy="epoch"))
    assert "logging_steps" not in capsys.readouterr().err


@pytest.mark.parametrize(("optim", "told"), [("sgd", True), ("adamw_torch", False)])
def test_numbers_of_adam_are_told_of_with_another_optimizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], optim: str, told: bool
) -> None:
    trainer(tmp_path, optim=optim, adam_beta1=0.5).create_optimizer()
    assert ("adam_beta1: no effect, as 'sgd' is no variant of Adam" in capsys.readouterr().err) == told


def test_arguments_that_a_given_optimizer_replaces_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Classes()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1)
    Trainer(model, arguments(tmp_path, learning_rate=0.25), optimizers=(optimizer, schedule))
    assert "no effect" not in capsys.readouterr().err
    Trainer(model, arguments(tmp_path, learning_rate=0.125, warmup_steps=3), optimizers=(optimizer, schedule))
    said = capsys.readouterr().err
    assert "learning_rate: is 0.125, which has no effect, as the optimizer given in `optimizers` has its own" in said
    assert "warmup_steps: is 3, which has no effect, as a schedule is given" in said
    Trainer(model, arguments(tmp_path, learning_rate=0.5), optimizer_cls_and_kwargs=(torch.optim.SGD, {}))
    assert "optimizer_cls_and_kwargs has no lr" in capsys.readouterr().err


def test_a_checkpoint_that_only_the_arguments_name_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = trainer(tmp_path, resume_from_checkpoint="checkpoint-7")
    toy.train(resume_from_checkpoint=False)
    assert "a new training begins" not in capsys.readouterr().err
    toy.train()
    assert "resume_from_checkpoint: is 'checkpoint-7' in the arguments" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "told"), [(Own, True), (Smoothing, False), (Trainer, False)])
def test_label_smoothing_that_an_own_loss_does_not_do_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[Trainer], told: bool
) -> None:
    trainer(tmp_path, kind, label_smoothing_factor=0.1).train()
    assert ("label_smoothing_factor: has no effect" in capsys.readouterr().err) == told


def test_a_loss_function_that_an_own_compute_loss_does_not_call_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer(tmp_path, Own, compute_loss_func=lambda outputs, labels, **_: outputs["logits"].sum()).train()
    assert "compute_loss_func: is never called, because your own compute_loss" in capsys.readouterr().err


def test_metrics_that_prediction_loss_only_switches_off_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = trainer(tmp_path, prediction_loss_only=True, compute_metrics=lambda _: {"score": 1.0})
    assert "eval_score" not in toy.evaluate()
    assert "prediction_loss_only: is True, so that compute_metrics is never called" in capsys.readouterr().err


def test_arguments_that_are_changed_after_they_were_read_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = trainer(tmp_path)
    toy.args.label_smoothing_factor, toy.args.learning_rate, toy.args.neftune_noise_alpha = 0.25, 0.125, 3.0
    toy.train()
    said = capsys.readouterr().err
    assert "label_smoothing_factor: is 0.25 now, but was 0.0 when the Trainer was made" in said
    assert "neftune_noise_alpha: is 3.0 now, but was None" in said
    assert "learning_rate" not in said


@pytest.mark.parametrize("name", ["loss", "own_loss", "own_runtime"])
def test_metrics_with_the_name_of_something_else_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    trainer(tmp_path, compute_metrics=lambda _: {name: 9.0}).evaluate(metric_key_prefix="own")
    said = capsys.readouterr().err
    wanted = "its 'loss' is own_loss in the place of the loss" if name == "loss" else f"its {name} is lost"
    assert f"compute_metrics: {wanted}" in said
