"""Train on two processes of torchrun's agent, one of which is killed in each of N starts: `elastic_pair.py FOLDER N`.

The agent forks them off this process, which has imported everything. The start that finishes then trains once more,
undisturbed, for comparison. test_many_devices.py does the same to x-train by the command torchrun.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tests.preloaded import SAVING, SHARDING, import_before_forking
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


def work(kills: int) -> None:
    train("killed", kills)
    train("undisturbed", 0)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    import_before_forking(*SHARDING, *SAVING)
    kills = int(sys.argv[2])
    elastic_launch(
        LaunchConfig(
            1, 1, 2, run_id="killed", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", max_restarts=kills,
            monitor_interval=0.1, start_method="fork",
        ),
        work,
    )(kills)  # fmt: skip
