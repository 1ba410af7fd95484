"""The installed Hugging Face Trainer is the judge: each continues from what the other has saved, bit for bit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import Dataset

import xdpx
from xdpx.checkpoints.folders import MANIFEST, check, newest
from xdpx.trainer.files import rng
from xdpx.trainer.files.checkpoint_files import Contents, OwnState, TrainerCheckpoint, save_checkpoint
from xdpx.trainer.files.model_files import ModelFiles, load_model

STEPS = 8
SETTINGS: dict[str, Any] = {
    "max_steps": STEPS, "save_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 0.1, "use_cpu": True,
    "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "lr_scheduler_type": "linear",
}  # fmt: skip


class Noisy(torch.nn.Module):
    """Draws from all three generators in each forward pass: only an exact resume gives equal weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        noise = torch.randn(()) + float(np.random.randn()) + random.gauss(0, 1)
        y = self.linear(x.unsqueeze(-1)).squeeze(-1) + 0.01 * noise
        return {"loss": ((y - labels) ** 2).mean(), "y": y}


class Line(Dataset[dict[str, float]]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, float]:
        return {"x": index / 16, "labels": 3 * index / 16 + 1}


def original(folder: Path, **more: Any) -> transformers.Trainer:
    arguments = transformers.TrainingArguments(str(folder), **{**SETTINGS, **more})
    return transformers.Trainer(Noisy(), arguments, train_dataset=Line(), eval_dataset=Line())


def ours_from(trainer: transformers.Trainer, parent: Path, step: int, own: OwnState) -> str:
    """Save, in our way, what the original holds at this moment."""
    contents = Contents(
        state=json.loads((Path(trainer.args.output_dir) / f"checkpoint-{step}/trainer_state.json").read_text()),
        arguments=trainer.args.to_dict(),
        optimizer=trainer.optimizer.state_dict(),
        scheduler=trainer.lr_scheduler.state_dict(),
    )
    return save_checkpoint(parent, step, contents, ModelFiles(trainer.model).write, own=own)


def weights(model: torch.nn.Module) -> list[list[float]]:
    return [parameter.detach().flatten().tolist() for parameter in model.parameters()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> transformers.Trainer:
    """The original, never stopped."""
    trainer = original(tmp_path_factory.mktemp("straight"))
    trainer.train()
    return trainer


class SaveOurs(transformers.TrainerCallback):
    """Saves with our code at the very moment at which the original has saved."""

    trainer: transformers.Trainer

    def __init__(self, parent: Path) -> None:
        self.parent = parent

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        ours_from(self.trainer, self.parent, state.global_step, OwnState.of_this_process())


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same training saved by the original and by us, at steps 4 and 8."""
    theirs, ours = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("ours")
    trainer = original(theirs)
    callback = SaveOurs(ours)
    callback.trainer = trainer
    trainer.add_callback(callback)
    trainer.train()
    return theirs, ours


def test_we_write_the_files_that_the_original_writes(both: tuple[Path, Path]) -> None:
    theirs, ours = ({path.name for path in (parent / "checkpoint-4").iterdir()} for parent in both)
    assert ours - theirs == {MANIFEST, "training_args.json"}
    assert theirs - ours == set()


def test_the_original_continues_from_ours_as_if_never_stopped(
    both: tuple[Path, Path], straight: transformers.Trainer, tmp_path: Path
) -> None:
    trainer = original(tmp_path)
    trainer.train(resume_from_checkpoint=str(both[1] / "checkpoint-4"))
    assert weights(trainer.model) == weights(straight.model)
    assert [row.get("loss") for row in trainer.state.log_history] == [
        row.get("loss") for row in straight.state.log_history
    ]


def test_the_original_finds_ours_by_itself(both: tuple[Path, Path], straight: transformers.Trainer) -> None:
    trainer = original(both[1], max_steps=STEPS + 4)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == STEPS + 4


def test_we_read_what_the_original_has_saved(both: tuple[Path, Path], straight: transformers.Trainer) -> None:
    path = both[0] / "checkpoint-8"
    assert check(path) == []
    assert newest(both[0]) == str(path)
    saved = TrainerCheckpoint.checked(path)
    assert saved.missing() == []
    assert saved.step == STEPS
    model = Noisy()
    load_model(model, saved.path)
    assert weights(model) == weights(straight.model)
    decayed, not_decayed = model.parameters()
    optimizer = torch.optim.AdamW([{"params": [decayed]}, {"params": [not_decayed]}])
    optimizer.load_state_dict(saved.optimizer() or {})
    assert optimizer.state_dict()["state"][0]["step"] == STEPS
    assert (saved.scheduler() or {})["last_epoch"] == STEPS
    assert saved.arguments() is None


def test_the_generators_of_the_original_are_restored(both: tuple[Path, Path]) -> None:
    def drawn(parent: Path) -> list[float]:
        rng.restore(TrainerCheckpoint(parent / "checkpoint-4").rng())
        return [random.random(), float(np.random.randn()), float(torch.randn(()))]

    assert drawn(both[0]) == drawn(both[1])


def ours(folder: Path, **more: Any) -> xdpx.Trainer:
    arguments = xdpx.TrainingArguments(str(folder), **{**SETTINGS, **more})
    return xdpx.Trainer(Noisy(), arguments, train_dataset=Line(), eval_dataset=Line())


def test_our_trainer_continues_from_the_original_as_if_never_stopped(
    both: tuple[Path, Path], straight: transformers.Trainer, tmp_path: Path
) -> None:
    trainer = ours(tmp_path)
    trainer.train(resume_from_checkpoint=str(both[0] / "checkpoint-4"))
    assert weights(trainer.model) == weights(straight.model)


def test_the_original_continues_from_our_trainer_as_if_never_stopped(
    straight: transformers.Trainer, tmp_path: Path
) -> None:
    ours(tmp_path / "ours").train()
    trainer = original(tmp_path / "theirs")
    trainer.train(resume_from_checkpoint=str(tmp_path / "ours/checkpoint-4"))
    assert weights(trainer.model) == weights(straight.model)


def test_saving_in_the_background_changes_nothing_but_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True, "save_total_limit": 2}
    found = []
    for answer in ("", "1"):
        monkeypatch.setenv("XDPX_SAVE_IN_BACKGROUND", answer)
        trainer = ours(tmp_path / f"run{answer}", save_steps=1, **best)
        trainer.train()
        folders = sorted(tmp_path.glob(f"run{answer}/checkpoint-*"))
        assert [check(folder) for folder in folders] == [[], []]
        names = [folder.name for folder in folders]
        found.append((weights(trainer.model), names, (folders[-1] / "optimizer.pt").read_bytes()))
    assert found[0] == found[1]


def tiny_bert() -> transformers.PreTrainedModel:
    torch.manual_seed(1)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 20,
    }
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, max_position_embeddings=8))


def tiny_gpt() -> transformers.PreTrainedModel:
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8)
    )


class Texts(Dataset[dict[str, Any]]):
    def __init__(self, per_token: bool) -> None:
        self.per_token = per_token

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.tensor([(index + i) % 20 for i in range(4)])
        return {"input_ids": ids, "labels": ids if self.per_token else index % 2}


@pytest.mark.parametrize(("build", "per_token"), [(tiny_bert, False), (tiny_gpt, True)], ids=["bert", "tied gpt2"])
def test_models_of_transformers_go_both_ways(
    tmp_path: Path, build: Callable[[], transformers.PreTrainedModel], per_token: bool
) -> None:
    def trainer(folder: Path, steps: int) -> transformers.Trainer:
        arguments = transformers.TrainingArguments(
            str(folder), max_steps=steps, save_steps=2, per_device_train_batch_size=4, use_cpu=True, report_to="none",
            disable_tqdm=True, lr_scheduler_type="constant",
        )  # fmt: skip
        return transformers.Trainer(build(), arguments, train_dataset=Texts(per_token))

    whole = trainer(tmp_path / "whole", 4)
    whole.train()
    half = trainer(tmp_path / "half", 2)  # after the other was trained: it sets the seed
    half.train()
    ours = ours_from(half, tmp_path / "ours", 2, OwnState.of_this_process())
    resumed = trainer(tmp_path / "resumed", 4)
    resumed.train(resume_from_checkpoint=ours)
    assert weights(resumed.model) == weights(whole.model)
    read = build()
    load_model(read, str(tmp_path / "whole/checkpoint-4"))
    assert weights(read) == weights(whole.model)
