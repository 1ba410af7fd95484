"""Train on two processes; one of them may be told to end: `torchrun ... signalled_pair.py FOLDER RANK STEP STRATEGY`.

Each process writes FOLDER/rank-<n>.json at its end, and FOLDER/stopped-<n>.json when it is left by the signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from xdpx import Trainer, TrainerCallback, TrainingArguments

FOLDER, KILLED, AT, SHARDING = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
RANK = int(os.environ["RANK"])


class Noisy(nn.Module):
    """Depends on the dice of its process, on the order of the data, and on the optimizer's memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Any, labels: Any) -> Any:
        y = self.second(nn.functional.dropout(self.first(x), 0.3, self.training)).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


class Kill(TrainerCallback):
    """Sends this process, and no other, the signal."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if RANK == KILLED and state.global_step == AT:
            os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Train, from the newest checkpoint where there is one."""
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(80)]
    args = TrainingArguments(
        str(FOLDER / "out"), use_cpu=True, disable_tqdm=True, save_strategy="epoch", logging_steps=1,
        per_device_train_batch_size=2, num_train_epochs=2, learning_rate=0.01, ddp_timeout=300,
        fsdp="" if SHARDING == "none" else SHARDING,
    )  # fmt: skip
    trainer = Trainer(Noisy(), args, train_dataset=rows, callbacks=[Kill()])
    try:
        trainer.train(resume_from_checkpoint=any((FOLDER / "out").glob("checkpoint-*")) or None)
    except SystemExit as leaving:
        tell("stopped", {"step": trainer.state.global_step, "code": leaving.code})
        raise
    weights = trainer.strategy.weights(trainer.model_wrapped, wanted=True)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    tell("rank", {"weights": {name: each.tolist() for name, each in weights.items()}, "losses": losses})


def tell(name: str, facts: dict[str, Any]) -> None:
    (FOLDER / f"{name}-{RANK}.json").write_text(json.dumps(facts), encoding="utf-8")


main()
