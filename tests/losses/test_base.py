"""A loss refuses what it would misread: the output of a model, or the batches of a processor, made for another loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses

ROWS, CLASSES = 4, 2


class Gives(nn.Module):
    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, input_ids: Tensor) -> Any:
        del input_ids
        return self.output


CLASS_LOGITS = torch.zeros(ROWS, CLASSES)
NUMBERS = torch.zeros(ROWS)
TAG_SCORES = torch.zeros(ROWS, 3, CLASSES), None
BATCH: dict[str, Any] = {
    "net_input": {"input_ids": torch.zeros(ROWS, 3, dtype=torch.long)},
    "target": torch.zeros(ROWS, dtype=torch.long),
}


@pytest.mark.parametrize(
    ("name", "output", "told"),
    [
        ("masked_lm", CLASS_LOGITS, "reads masked tokens, but no tokens are masked"),
        ("masked_lm", NUMBERS, r"shape \(4,\), .* \(masked tokens, words of the vocabulary\)"),
        ("bert", (CLASS_LOGITS, CLASS_LOGITS), "no tokens are masked"),
        ("bert", TAG_SCORES, "NoneType"),
        ("bert_pretrain_cl", CLASS_LOGITS, "2 outputs: logits of masked tokens, vectors of texts"),
        ("simcse", CLASS_LOGITS, "rows, views"),
        ("bert_dpr", NUMBERS, "rows, views"),
        ("bert_cl", TAG_SCORES, "a tensor"),
        ("bert_qa", torch.zeros(ROWS, 3, 5), r"\(texts, tokens, 2\)"),
        ("bert_prompt_loss", CLASS_LOGITS, "blanks"),
        ("distill", NUMBERS, "4 rows and 2 classes"),
        ("bce_distill", NUMBERS, "4 rows and 2 classes"),
    ],
)
def test_a_model_of_another_loss_is_refused(name: str, output: Any, told: str) -> None:
    kind = losses[name]
    keys = {
        key: value
        for key, value in {"num_classes": CLASSES, "max_len": 3}.items()
        if key in kind.Parameters.model_fields
    }
    with pytest.raises(ConfigError, match=told):
        kind(kind.Parameters(**keys)).predictions(Gives(output), BATCH)


def test_rows_that_are_not_drawn_as_episodes_are_no_episodes() -> None:
    loss = losses["fewshot"](losses["fewshot"].Parameters())
    vectors = {name: value.numpy() for name, value in loss.predictions(Gives(CLASS_LOGITS), BATCH).items()}
    with pytest.raises(ConfigError, match="sampler: episode"):
        loss.metrics(vectors)


def test_a_row_for_each_masked_token_is_no_row_for_each_text() -> None:
    kind, masked = losses["masked_lm"], {"masked_positions": torch.arange(ROWS), **BATCH["net_input"]}

    class OfTokens(nn.Module):
        def forward(self, input_ids: Tensor, masked_positions: Tensor) -> Tensor:
            del input_ids
            return CLASS_LOGITS[: len(masked_positions)]

    found = kind(kind.Parameters(num_classes=CLASSES)).predictions(OfTokens(), {**BATCH, "net_input": masked})
    assert int(found["count"]) == ROWS
