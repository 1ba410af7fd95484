"""What of a batch does not fit the model is named when its loss cannot be computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from xdpx import Trainer, TrainingArguments


def bert(**settings: Any) -> BertForSequenceClassification:
    small = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8, "num_hidden_layers": 1}
    return BertForSequenceClassification(
        BertConfig(vocab_size=9, max_position_embeddings=6, num_labels=3, **small, **settings)
    )


def failing(folder: Path, model: Any = None, **row: Any) -> str:
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": 1} | row] * 2
    args = TrainingArguments(str(folder), use_cpu=True, save_strategy="no", disable_tqdm=True)
    with pytest.raises((IndexError, ValueError, RuntimeError)) as found:
        Trainer(model or bert(), args, train_dataset=data).train()
    return " ".join(getattr(found.value, "__notes__", ()))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"labels": 3}, "labels: are 3 to 3, but the model has num_labels=3"),
        ({"labels": -1}, "labels: are -1 to -1"),
        ({"labels": 1.0}, "labels: are torch.float32"),
        ({"labels": True}, "labels: are torch.bool, which the model takes for several labels per row"),
        (
            {"labels": [0, 1, 0]},
            "labels: has 3 integers for each row, as many as the model has classes. Give the number",
        ),
        ({"input_ids": torch.tensor([1, 9])}, "input_ids: has 9, but the model has 9 embeddings"),
        (
            {"input_ids": torch.tensor([[1, 2, 3]])},
            "input_ids: has shape (2, 1, 3), where each row is in a list of its",
        ),
        ({"input_ids": torch.ones(7, dtype=torch.long)}, "7 tokens in a row, but the model has max_position_embe"),
    ],
)
def test_labels_and_ids_that_do_not_fit_are_named(row: dict[str, Any], named: str, tmp_path: Path) -> None:
    assert named in failing(tmp_path, **row)


def test_nothing_is_added_to_an_error_of_another_kind(tmp_path: Path) -> None:
    assert not failing(tmp_path, labels=1, position_ids=torch.ones(2, dtype=torch.long))


def test_several_labels_per_row_are_asked_for_as_floats(tmp_path: Path) -> None:
    model = bert(problem_type="multi_label_classification")
    assert "labels: are torch.int64, but the model has problem_type=" in failing(tmp_path, model, labels=[1, 0, 1])


def test_a_batch_of_nothing_but_labels_is_told_so(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True, save_strategy="no", disable_tqdm=True)
    with pytest.raises(ValueError, match="input_ids") as found:
        Trainer(bert(), args, train_dataset=[{"text": "not tokenized", "label": 1}]).train()
    assert "The batch holds only labels: no other column" in found.value.__notes__[0]
