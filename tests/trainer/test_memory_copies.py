"""A Trainer that was killed between two saves goes on from its copy in memory, to the bits of an undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.signalled_pair import Noisy
from xdpx import Trainer, TrainerCallback, TrainingArguments


class Killed(TrainerCallback):
    """Ends training as a kill would, before anything is saved."""

    def on_step_end(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        if state.global_step == 8:
            raise KeyboardInterrupt


def trainer(folder: Path, **more: Any) -> Trainer:
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(24)]
    args = TrainingArguments(
        str(folder), use_cpu=True, disable_tqdm=True, save_steps=4, max_steps=12, report_to="none",
        per_device_train_batch_size=2, learning_rate=0.01, memory_copy_interval=3,
    )  # fmt: skip
    torch.manual_seed(0)
    return Trainer(Noisy(), args, train_dataset=rows, **more)


def test_a_copy_in_memory_is_resumed_where_it_is_newer_than_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr("xdpx.checkpoints.memory_copies.SHARED_MEMORY", str(memory))
    undisturbed = trainer(tmp_path / "undisturbed")
    undisturbed.train()
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path / "killed", callbacks=[Killed()]).train()
    assert [path.name for path in memory.rglob("checkpoint-*") if path.is_dir()] == ["checkpoint-6"]
    capsys.readouterr()
    again = trainer(tmp_path / "killed")
    again.train(resume_from_checkpoint=True)
    assert "step 6 is resumed from its copy in memory" in capsys.readouterr().err
    one, other = (each.model.state_dict() for each in (again, undisturbed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not list(memory.rglob("checkpoint-*"))
