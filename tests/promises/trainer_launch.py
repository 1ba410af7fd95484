"""A script for launchers: `trainer_launch.py --facts FOLDER …` records its ranks and trains for two steps."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

library: Any = importlib.import_module(os.environ.get("XDPX_TRAINER_UNDER_TEST", "xdpx"))


@dataclass
class Script:
    """The script's own arguments."""

    facts: str


class Line(nn.Module):
    """A linear function with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the squared error and the outputs."""
        y = self.weight * x
        return ((y - labels) ** 2).mean(), y


def main() -> None:
    """Parse arguments, train, and record the facts."""
    script, args = library.HfArgumentParser((Script, library.TrainingArguments)).parse_args_into_dataclasses()
    logger = logging.getLogger("marker")
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.propagate = False
    logger.setLevel(args.get_process_log_level())
    logger.warning("marker at warning")
    logger.error("marker at error")
    rows = [{"x": torch.tensor(float(i)), "labels": torch.tensor(2.0 * i)} for i in range(8)]
    trainer = library.Trainer(Line(), args, train_dataset=rows)
    trainer.train()
    facts = {
        "world": args.world_size,
        "local": args.local_process_index,
        "mode": str(getattr(args.parallel_mode, "value", args.parallel_mode)),
        "device": str(args.device),
        "wrapper": type(trainer.model_wrapped).__name__,
        "steps": trainer.state.global_step,
        "weight": trainer.model.weight.item(),
        "main": trainer.is_world_process_zero(),
        "local_main": trainer.is_local_process_zero(),
        "level": args.get_process_log_level(),
    }
    (Path(script.facts) / f"rank-{args.process_index}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
