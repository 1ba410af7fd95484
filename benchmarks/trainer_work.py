"""Shared by the three Trainer benchmarks: both libraries, a tiny model, MiniLM on sst2, and a clock."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from benchmarks.work import DATA, WORK, minilm


def libraries() -> dict[str, ModuleType]:
    """Return name -> module of ours and the original, which have the same interface."""
    import transformers

    import xdpx

    return {"ours": xdpx, "the original": transformers}


class Square(nn.Module):
    """The smallest model of the promise: one 16 x 16 linear layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Return the mean squared error and the outputs."""
        y = self.dropout(self.layer(x))
        return {"logits": y} if labels is None else {"loss": nn.functional.mse_loss(y, labels), "logits": y}


class Points(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Pairs of 16 numbers each; counts how many items were read."""

    def __init__(self, count: int) -> None:
        dice = torch.Generator().manual_seed(1)
        self.x = torch.randn(count, 16, generator=dice)
        self.y = torch.randn(count, 16, generator=dice)
        self.asked = 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.asked += 1
        return {"x": self.x[index], "labels": self.y[index]}


def bert(seed: int = 1) -> nn.Module:
    """Return the pretrained MiniLM with a new classifier."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    model: nn.Module = AutoModelForSequenceClassification.from_pretrained(str(minilm()), num_labels=2)
    return model


def sentences(count: int, split: str = "train", max_len: int = 64) -> list[dict[str, Any]]:
    """Return the first rows of sst2 as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(minilm()))
    with (DATA / "sst2" / f"{split}.tsv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:count]
    coded = tokenizer([row[0] for row in rows], truncation=True, max_length=max_len)
    return [
        {"input_ids": ids, "attention_mask": mask, "labels": int(row[1])}
        for ids, mask, row in zip(coded["input_ids"], coded["attention_mask"], rows, strict=True)
    ]


def padded(batch: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate sentences with padding; the same collator for all."""
    width = max(len(row["input_ids"]) for row in batch)
    grid = {
        name: torch.tensor([row[name] + [0] * (width - len(row[name])) for row in batch])
        for name in ("input_ids", "attention_mask")
    }
    return {**grid, "labels": torch.tensor([row["labels"] for row in batch])}


def settings(library: ModuleType, place: str | Path, **changes: Any) -> Any:
    """Return arguments for a quiet run on the CPU; nothing is saved by default.

    Args:
        library: ours or the original.
        place: a name in the working folder, or an absolute path.
        changes: overrides of the arguments.
    """
    common = {"save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 1}
    return library.TrainingArguments(output_dir=str(folder(place)), **(common | changes))


def folder(place: str | Path) -> Path:
    """Return the folder of a run: a name in the working folder, or an absolute path."""
    return WORK / "trainer" / place


def clock(library: ModuleType) -> Any:
    """Return a callback that records the end of every step and save, and the start of the first step."""

    class Clock(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.began = 0.0
            self.ends: list[float] = []
            self.saves: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = self.began or time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

        def on_save(self, *_: Any, **__: Any) -> None:
            self.saves.append(time.perf_counter() - self.ends[-1])

    return Clock()
