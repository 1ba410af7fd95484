"""Train with DeepSpeed on two processes: `torchrun ... deepspeed_pair.py FOLDER STAGE`; each writes rank-<n>.json."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from xdpx import Trainer, TrainerCallback, TrainingArguments

FOLDER, STAGE = Path(sys.argv[1]), int(sys.argv[2])
CONFIG = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": STAGE, "reduce_bucket_size": "auto", "stage3_param_persistence_threshold": 0},
}


class Net(nn.Module):
    """A smooth and small model without randomness."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Any, labels: Any = None) -> Any:
        y = self.layers(x).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": ((y - labels) ** 2).mean(), "logits": y}


class Stop(TrainerCallback):
    """Ends the training after three steps."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == 3


def rows() -> list[dict[str, Any]]:
    dice = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(20)]


def trained(name: str, *, deepspeed: Any, resume: bool = False, **changes: Any) -> dict[str, Any]:
    """Train two epochs of three updates, the last of which is short; return the results."""
    usual: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3, "per_device_train_batch_size": 2,
                             "gradient_accumulation_steps": 2, "num_train_epochs": 2} | changes  # fmt: skip
    stop = usual.pop("stop", False)
    args = TrainingArguments(
        str(FOLDER / name), use_cpu=True, disable_tqdm=True, logging_steps=1, learning_rate=0.05, weight_decay=0.1,
        max_grad_norm=0.5, train_sampling_strategy="sequential", deepspeed=deepspeed, **usual,
    )  # fmt: skip
    trainer = Trainer(Net(), args, train_dataset=rows(), callbacks=[Stop()] if stop else [])
    trainer.train(resume_from_checkpoint=resume or None)
    history = trainer.state.log_history
    weights = trainer.strategy.weights(trainer.model_wrapped, wanted=True)
    return {
        "losses": [row["loss"] for row in history if "loss" in row],
        "norms": [row["grad_norm"] for row in history if "grad_norm" in row],
        "rates": [row["learning_rate"] for row in history if "learning_rate" in row],
        "weights": {name: each.flatten().tolist() for name, each in weights.items()},
        "eval": trainer.evaluate(rows()[:7])["eval_loss"],
        "wrapper": type(trainer.model_wrapped).__name__,
        "stage": trainer.model_wrapped.zero_optimization_stage() if deepspeed else None,
    }


def main() -> None:
    """Train with DDP, and with DeepSpeed without interruption, in two parts, and in half precision."""
    facts = {"plain": trained("plain", deepspeed=None), "straight": trained("straight", deepspeed=CONFIG)}
    trained("parts", deepspeed=CONFIG, stop=True)
    facts["resumed"] = trained("parts", deepspeed=CONFIG, resume=True)
    facts["half"] = trained("half", deepspeed=CONFIG, bf16=True, save_strategy="no")
    (FOLDER / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
