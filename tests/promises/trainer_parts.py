"""Small models, data and arguments for the tests of the Trainer's promises and pains.

`XDPX_TRAINER_UNDER_TEST=transformers` runs the same tests against the original: promises that it keeps must pass, too,
and the failures show that a test can fail.
"""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.bert import BertConfig, BertForSequenceClassification
from transformers.models.gpt2 import GPT2Config, GPT2LMHeadModel

door: Any = importlib.import_module(os.environ.get("XDPX_TRAINER_UNDER_TEST", "xdpx"))
ORIGINAL = door.__name__ == "transformers"


class Rows(Dataset[dict[str, Tensor]]):
    """Rows of four numbers `x` and a class `labels`; `asked` records which were read."""

    def __init__(self, count: int = 24, seed: int = 1, classes: int = 3) -> None:
        self.x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
        self.classes = classes
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.asked.append(int(index))
        return {"x": self.x[index], "labels": int(index) % self.classes}


class Net(nn.Module):
    """A classifier of four numbers that returns a dict."""

    def __init__(self, dropout: float = 0.0, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, classes)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(torch.relu(self.norm(self.body(x)))))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.logits(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class TupleNet(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        return tuple(super().forward(x, labels).values())


class OutputNet(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        return SequenceClassifierOutput(**super().forward(x, labels))


class NoisyNet(Net):
    """Draws random numbers from Python, NumPy and torch in every forward pass."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        if self.training:
            x = x + 0.1 * random.random() + 0.1 * float(np.random.rand()) + 0.1 * torch.randn(4)
        return super().forward(x, labels)


def seeded(kind: Callable[..., nn.Module] = Net, *values: Any, **options: Any) -> Any:
    """Return a model with the same weights each time."""
    torch.manual_seed(0)
    return kind(*values, **options)


def tiny_bert(labels: int = 3, layers: int = 1, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": layers}
    chances = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=labels, **shape, **chances))


def tiny_gpt() -> Any:
    torch.manual_seed(0)
    chances = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, **chances))


def token_rows(count: int = 24, length: int = 6, classes: int = 3) -> list[dict[str, Any]]:
    dice = torch.Generator().manual_seed(1)
    return [
        {"input_ids": torch.randint(5, 50, (length,), generator=dice), "labels": number % classes}
        for number in range(count)
    ]


def text_rows(count: int = 16, length: int = 8) -> list[dict[str, Any]]:
    """Rows for a language model; the first tokens (row number modulo 6) are excluded from the loss."""
    dice = torch.Generator().manual_seed(3)
    rows = []
    for number in range(count):
        ids = torch.randint(0, 40, (length,), generator=dice)
        labels = ids.clone()
        labels[: number % 6] = -100
        rows.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return rows


def arguments(folder: Path | str, **changes: Any) -> Any:
    """Return arguments for a short, quiet run on the CPU that does not save by default."""
    usual: dict[str, Any] = {
        "learning_rate": 0.01,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return door.TrainingArguments(output_dir=str(folder), **(usual | changes))


def build(folder: Path | str, model: Any = None, data: Any = None, *, kind: Any = None, **changes: Any) -> Any:
    """Return a Trainer over `data`; keyword arguments that the Trainer does not take go to its arguments."""
    own = {
        "compute_metrics",
        "callbacks",
        "compute_loss_func",
        "optimizers",
        "eval_dataset",
        "model_init",
        "data_collator",
    }
    own |= {"processing_class", "tokenizer", "preprocess_logits_for_metrics", "optimizer_cls_and_kwargs"}
    taken = {name: changes.pop(name) for name in list(changes) if name in own}
    if model is None and "model_init" not in taken:
        model = seeded()
    rows = Rows() if data is None else data
    return (kind or door.Trainer)(model=model, args=arguments(folder, **changes), train_dataset=rows, **taken)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def stopper(step: int) -> Any:
    """Return a callback that ends training after a step, as if the process had received a signal."""

    class Stopper(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == step:
                control.should_training_stop = True

    return Stopper()


def folders(place: Path | str) -> list[str]:
    return sorted(path.name for path in Path(place).glob("checkpoint-*"))
