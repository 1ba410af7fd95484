"""What an update of the Trainer costs beside the model, in calls: they are the same on every machine.

Each watcher that was added cost a few microseconds, and together they doubled the cost of a small step before anyone
noticed. A commit that raises the number must say what it is worth.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import xdpx

OURS = str(Path(xdpx.__file__).parent)
FIRST, LAST = 30, 50
"""Steps that are counted: after the first ones, in which models and batches are examined; between two logs."""
MOST = 165
"""Calls of our functions per update; 156 when this was written."""


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.layer(x), labels)}


class Counting(xdpx.TrainerCallback):
    """Counts the calls of our functions between two steps."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == FIRST:
            sys.setprofile(self._note)
        elif state.global_step == LAST:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.calls[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1


def test_an_update_calls_few_functions(tmp_path: Path) -> None:
    rows = [{"x": torch.ones(4), "labels": torch.ones(4)} for _ in range(8 * LAST)]
    counting = Counting()
    args = xdpx.TrainingArguments(
        str(tmp_path), num_train_epochs=1, logging_steps=1000, report_to="none", use_cpu=True, disable_tqdm=True
    )
    try:
        xdpx.Trainer(Square(), args, train_dataset=rows, callbacks=[counting]).train()
    finally:
        sys.setprofile(None)
    per_update = counting.calls.total() / (LAST - FIRST)
    shown = "\n".join(f"{count:5} {name}" for name, count in counting.calls.most_common())
    assert 0 < per_update <= MOST, f"{per_update} calls per update:\n{shown}"
