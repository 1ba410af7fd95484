"""Ours beside the original's: the same losses, and either goes on from the other's checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import xdpx
from tests.tiers import some

pytest.importorskip("accelerate")

BOTH = [(transformers, xdpx), (xdpx, transformers)]


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer, self.dropout = nn.LayerNorm(3), nn.Linear(3, 1), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(self.dropout(self.norm(x))).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def line() -> tuple[nn.Module, list[dict[str, Any]]]:
    torch.manual_seed(0)
    dice = torch.Generator().manual_seed(3)
    rows = [{"x": torch.randn(3, generator=dice)} for _ in range(33)]
    return Line(), [{**row, "labels": row["x"].sum() + 1} for row in rows]


def bert() -> tuple[nn.Module, list[dict[str, Any]]]:
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 1}
    dice = torch.Generator().manual_seed(3)
    ids = [torch.randint(0, 50, (6,), generator=dice) for _ in range(33)]
    return BertForSequenceClassification(BertConfig(vocab_size=50, **small)), [
        {"input_ids": row, "labels": int(row.sum() % 2)} for row in ids
    ]


def gpt() -> tuple[nn.Module, list[dict[str, Any]]]:
    torch.manual_seed(0)
    dice = torch.Generator().manual_seed(3)
    ids = [torch.randint(0, 40, (7,), generator=dice) for _ in range(33)]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    return model, [{"input_ids": row, "labels": row} for row in ids]


def trained(library: ModuleType, work: Any, folder: Path, resume: str | None = None, **changes: Any) -> Any:
    model, rows = work()
    common: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "num_train_epochs": 2}
    common |= {"save_strategy": "steps", "save_steps": 3, "report_to": "none", "learning_rate": 1e-2}
    args = library.TrainingArguments(str(folder), **(common | changes))
    trainer = library.Trainer(model, args, train_dataset=rows, eval_dataset=rows[:10])
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer: Any) -> list[float]:
    return [value for row in trainer.state.log_history for name, value in row.items() if name in {"loss", "eval_loss"}]


SPEED = {"samples_per_second", "steps_per_second", "data_wait_share"}  # which the original does not tell


SETTINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (line, {}),
    "constant": (line, {"lr_scheduler_type": "constant"}),
    "accumulated": (line, {"gradient_accumulation_steps": 4, "num_train_epochs": 3}),
    "decayed": (line, {"weight_decay": 0.3, "warmup_steps": 3, "max_grad_norm": 0.1}),
    "not clipped": (line, {"max_grad_norm": 0.0, "optim": "sgd"}),
    "by steps": (line, {"max_steps": 13}),
    "dropping the last": (line, {"dataloader_drop_last": True}),
    "BERT": (bert, {}),
    "BERT smoothed": (bert, {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 4}),
    "BERT with noise": (bert, {"neftune_noise_alpha": 5.0}),
    "BERT by length": (bert, {"train_sampling_strategy": "group_by_length"}),
    "GPT": (gpt, {"gradient_accumulation_steps": 4}),
    "GPT with tokens": (gpt, {"include_num_input_tokens_seen": "all"}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_logged_loss_is_the_original_s(name: str, tmp_path: Path) -> None:
    work, changes = SETTINGS[name]
    ours, theirs = (trained(library, work, tmp_path / library.__name__, **changes) for library in (xdpx, transformers))
    assert losses(ours) == pytest.approx(losses(theirs), abs=1e-6)
    for mine, other in zip(ours.state.log_history, theirs.state.log_history, strict=True):
        if "num_input_tokens_seen" in other and "loss" in other:
            mine.pop("tokens_per_second")
        clock = {key for key in other if key.endswith(("_runtime", "_per_second"))}
        assert mine.keys() == other.keys() | (SPEED if "loss" in other else set())
        for key in other.keys() - clock:
            assert math.isclose(mine[key], other[key], rel_tol=1e-5, abs_tol=1e-6), key


@pytest.mark.parametrize(("first", "second"), BOTH, ids=["ours goes on", "the original goes on"])
@pytest.mark.parametrize("step", some([3, 5, 6], [3, 5]))  # inside an epoch, and at its end
def test_either_goes_on_from_the_other_s_checkpoint(first: Any, second: Any, step: int, tmp_path: Path) -> None:
    whole = trained(second, line, tmp_path / "whole", save_steps=step)
    trained(first, line, tmp_path / "parts", save_steps=step)
    again = trained(second, line, tmp_path / "again", str(tmp_path / "parts" / f"checkpoint-{step}"), save_steps=step)
    assert losses(again) == pytest.approx(losses(whole), abs=1e-6)


def test_the_folders_of_both_hold_the_same_files_but_for_those_of_ours(tmp_path: Path) -> None:
    found = {}
    for library in (xdpx, transformers):
        trained(library, bert, tmp_path / library.__name__, save_steps=5)
        found[library.__name__] = {path.name for path in (tmp_path / library.__name__ / "checkpoint-5").iterdir()}
    assert found["transformers"] <= found["xdpx"]
    own = {"checkpoint.manifest.json", "progress.json", "training_args.json", "loader_state.pt"}
    assert found["xdpx"] - found["transformers"] <= own
