"""Answers to questions: what cannot be predicted is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.losses.bert_qa import BertQALoss


class Undecided(nn.Module):
    """Gives the same logits for all positions."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return zeros (B, T, 2)."""
        return torch.zeros(*input_ids.shape, 2)


@pytest.mark.parametrize(("longest", "told"), [(2, True), (3, False)])
def test_answers_too_long_to_be_predicted_are_told_of(
    longest: int, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    loss = BertQALoss(BertQALoss.Parameters(max_answer_length=longest))
    places = torch.arange(6).repeat(2, 1)
    batch = {
        "net_input": {"input_ids": places}, "target": torch.tensor([[2, 4], [3, 3]]), "id": torch.arange(2),
        "window": torch.zeros(2, dtype=torch.long), "begins": places, "ends": places + 1,
        "text": torch.tensor([list(b"abcdef")] * 2), "right": torch.tensor([list(b"cde"), list(b"d\0\0")]),
    }  # fmt: skip
    found = {name: np.asarray(value) for name, value in loss.predictions(Undecided(), batch).items()}
    loss.metrics(found)
    told_of = f"some right answers have more than {longest} tokens, and cannot be predicted"
    assert (told_of in capsys.readouterr().err) is told
