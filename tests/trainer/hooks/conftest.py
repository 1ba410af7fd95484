"""Minimal arguments and a minimal callback handler for tests of hooks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xdpx.trainer.hooks.builtin import DefaultFlowCallback
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerControl, TrainerState


def arguments(**changes: Any) -> Any:
    """Return the attributes that callbacks read of TrainingArguments, with its defaults."""
    defaults = {
        "logging_first_step": False, "logging_strategy": "steps", "eval_strategy": "no", "eval_delay": 0,
        "save_strategy": "steps", "metric_for_best_model": "loss", "greater_is_better": False,
        "load_best_model_at_end": True,
    }  # fmt: skip
    return SimpleNamespace(**{**defaults, **changes})


class Stage:
    """A handler with everything that its events need."""

    def __init__(self) -> None:
        self.args, self.state, self.control = arguments(), TrainerState(global_step=3), TrainerControl()
        self.handler = CallbackHandler([DefaultFlowCallback()], "model", "tokenizer", "optimizer", "scheduler")
        self.handler.train_dataloader, self.handler.eval_dataloader = "training", "evaluation"

    def fire(self, event: str, *more: Any) -> TrainerControl:
        self.control = getattr(self.handler, event)(self.args, self.state, self.control, *more)
        return self.control


@pytest.fixture
def stage() -> Stage:
    return Stage()
