from __future__ import annotations

import inspect
from typing import Any

import pytest
import transformers

from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.setters import Setters

SETTERS = [name for name in vars(Setters) if name.startswith("set_")]
GIVEN: dict[str, dict[str, Any]] = {
    "set_training": {"learning_rate": 1e-4, "batch_size": 32, "activation_checkpointing": True},
    "set_evaluate": {"strategy": "steps", "steps": 100, "batch_size": 4, "delay": 2},
    "set_testing": {"batch_size": 5, "loss_only": True},
    "set_save": {"strategy": "epoch", "total_limit": 2},
    "set_logging": {"strategy": "steps", "steps": 7, "level": "info"},
    "set_push_to_hub": {"model_id": "me/it", "strategy": "end", "private_repo": True},
    "set_optimizer": {"name": "sgd", "beta1": 0.8, "args": "a=1"},
    "set_lr_scheduler": {"name": "cosine", "warmup_steps": 0.05},
    "set_dataloader": {"train_batch_size": 16, "num_workers": 2, "sampler_seed": 3},
}


def test_every_setter_of_the_original_is_here() -> None:
    assert sorted(GIVEN) == sorted(SETTERS) == sorted(n for n in dir(transformers.TrainingArguments) if n[:4] == "set_")


@pytest.mark.parametrize("name", SETTERS)
def test_a_setter_takes_what_the_original_takes_by_the_same_defaults(name: str) -> None:
    theirs = inspect.signature(getattr(transformers.TrainingArguments, name)).parameters
    ours = inspect.signature(getattr(TrainingArguments, name)).parameters
    assert [(p, theirs[p].default) for p in theirs] == [(p, ours[p].default) for p in list(ours)[: len(theirs)]]


@pytest.mark.parametrize("name", SETTERS)
def test_a_setter_sets_what_the_original_sets_and_can_be_chained(name: str) -> None:
    ours, theirs = TrainingArguments("x"), transformers.TrainingArguments("x")
    assert getattr(ours, name)(**GIVEN[name]) is ours
    getattr(theirs, name)(**GIVEN[name])
    theirs.report_to = []  # the original leaves the text "none" there
    assert ours.to_dict() == theirs.to_dict()


@pytest.mark.parametrize("name", ["set_evaluate", "set_save", "set_logging"])
def test_steps_without_a_number_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="steps: is 0"):
        getattr(TrainingArguments("x"), name)(strategy="steps", steps=0)


def test_an_evaluation_without_delay_begins_at_once() -> None:
    assert TrainingArguments("x").set_evaluate("epoch").eval_delay == 0


def test_warm_up_may_be_set_as_a_ratio() -> None:
    assert TrainingArguments("x").set_lr_scheduler(warmup_ratio=0.1).warmup_steps == 0.1
