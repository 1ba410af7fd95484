"""A BERT of any size with random weights and random tokens, which do not change the cost of a step."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor
from transformers.models.bert import BertConfig, BertForSequenceClassification

Spec = dict[str, Any]
VOCABULARY = 30522


def read_spec(path: str) -> Spec:
    """Return a spec: layers, dims, heads, length, rows (per batch), updates, gpu, and extra keys of the script.

    Raises:
        SystemExit: the spec requires a GPU, and torch sees none.
    """
    with open(path, encoding="utf-8") as file:
        spec: Spec = json.load(file)
    if spec["gpu"] and not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} sees no GPU: install the build for the CUDA of the driver.")
    return spec


def classifier(spec: Spec) -> BertForSequenceClassification:
    """Return a classifier with two classes, on the host, with the same weights each time."""
    torch.manual_seed(1)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=spec["dims"], num_hidden_layers=spec["layers"],
            num_attention_heads=spec["heads"], intermediate_size=4 * spec["dims"], num_labels=2,
        )
    )  # fmt: skip


def samples(spec: Spec) -> list[dict[str, Tensor]]:
    """Return as many samples as the updates take, without padding, the same each time."""
    dice = torch.Generator().manual_seed(1)
    ids = torch.randint(1000, VOCABULARY, (spec["updates"] * spec["rows"], spec["length"]), generator=dice)
    mask = torch.ones(spec["length"], dtype=torch.long)
    return [
        {"input_ids": row, "attention_mask": mask, "labels": torch.tensor(number % 2)} for number, row in enumerate(ids)
    ]


def batch_of(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stack samples of equal length."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
