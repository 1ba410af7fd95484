"""Train a tiny model with LIBRARY. Usage: trainer_first_step.py LIBRARY TIME_OF_START. Prints {"seconds"}."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    """One linear layer with the mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and the outputs."""
        y = self.layer(x)
        return nn.functional.mse_loss(y, labels), y


def main() -> None:
    """Train for one step."""
    library: Any = import_module(sys.argv[1])
    ends: list[float] = []

    class Clock(library.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.time())

    rows = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        args = library.TrainingArguments(folder, max_steps=1, save_strategy="no", use_cpu=True, report_to="none")
        library.Trainer(Net(), args, train_dataset=rows, callbacks=[Clock()]).train()
    print(json.dumps({"seconds": ends[0] - float(sys.argv[2])}))


if __name__ == "__main__":
    main()
