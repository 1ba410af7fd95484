"""A run of the Trainer that is told to end: it saves, leaves with the code that means "continue me", and continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from xdpx.training.preemption import EXIT_CODE

SCRIPT = """
import os, signal, sys, torch
from torch import nn
from xdpx import Trainer, TrainerCallback, TrainingArguments

class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
    def forward(self, x, labels):
        y = self.layer(self.layer.weight * nn.functional.dropout(x, 0.5, self.training)).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

class Kill(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGTERM)

for folder in sys.argv[3:]:
    torch.manual_seed(0)
    data = [{"x": torch.tensor([float(i % 5)]), "labels": torch.tensor(float(i % 5))} for i in range(32)]
    args = TrainingArguments(folder, use_cpu=True, disable_tqdm=True, save_strategy=sys.argv[1], logging_steps=1)
    trainer = Trainer(Line(), args, train_dataset=data, callbacks=[Kill()])
    trainer.train(resume_from_checkpoint=os.path.isdir(folder + "/checkpoint-6") or None)
    print("END", [row["loss"] for row in trainer.state.log_history if "loss" in row])
"""


def run(*folders: Path, kill_at: int, strategy: str = "epoch") -> subprocess.CompletedProcess[str]:
    """Train into one folder after another, in a process of their own."""
    line = [sys.executable, "-c", SCRIPT, strategy, str(kill_at), *map(str, folders)]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


def test_a_run_that_is_told_to_end_saves_the_step_it_was_at_and_is_continued_exactly(tmp_path: Path) -> None:
    stopped = run(tmp_path / "stopped", kill_at=5)
    assert stopped.returncode == EXIT_CODE, stopped.stderr
    assert "END" not in stopped.stdout
    assert (tmp_path / "stopped" / "checkpoint-6" / "trainer_state.json").exists()
    both = run(tmp_path / "stopped", tmp_path / "whole", kill_at=-1)
    continued, whole = (line for line in both.stdout.splitlines() if line.startswith("END"))
    assert continued == whole


def test_a_run_that_saves_nothing_ends_at_once_as_it_always_did(tmp_path: Path) -> None:
    assert run(tmp_path, kill_at=5, strategy="no").returncode == -signal.SIGTERM
