"""Train on two torchrun processes, one of which is killed in each of the first N starts: `elastic_pair.py FOLDER N`.

The start that finishes then trains once more, undisturbed, for comparison.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from tests.trainer.signalled_pair import Noisy
from xdpx import Trainer, TrainerCallback, TrainingArguments


class Mortal(TrainerCallback):
    """Kills its process after some events; a checkpoint is written about every ten events."""

    def __init__(self, kills: int) -> None:
        life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        drawn = random.Random(life)
        self.chosen = life < kills and int(os.environ["RANK"]) == drawn.randrange(2)
        self.left = drawn.randrange(5, 40)

    def heard(self, *args: Any, **brought: Any) -> None:
        self.left -= 1
        if self.chosen and self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    on_train_begin = on_step_begin = on_substep_end = on_step_end = on_log = on_save = heard


def train(folder: str, kills: int) -> None:
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(96)]
    args = TrainingArguments(
        folder, use_cpu=True, disable_tqdm=True, save_steps=3, save_total_limit=2, logging_steps=2, report_to="none",
        per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=30, learning_rate=0.01, ema_decay=0.9,
    )  # fmt: skip
    trainer = Trainer(Noisy(), args, train_dataset=rows, callbacks=[Mortal(kills)])
    trainer.train(resume_from_checkpoint=any(Path(folder).glob("checkpoint-*")) or None)
    trainer.save_model(f"{folder}/last")


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    train("killed", int(sys.argv[2]))
    train("undisturbed", 0)
