"""Losses over tokens: the next one, or the masked ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from xdpx.losses import losses
from xdpx.losses.language_models import CausalLM


class Even(torch.nn.Module):
    """Finds all of four tokens equally likely, the third a little more."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 1e-6, 0.0]).expand(*input_ids.shape, 4)


def test_only_positions_with_a_target_count() -> None:
    loss = CausalLM(CausalLM.Parameters())
    batch: dict[str, Any] = {
        "net_input": {"input_ids": torch.zeros(2, 3, dtype=torch.long)},
        "target": torch.tensor([[2, 1, -100], [2, -100, -100]]),
    }
    total, count, facts = loss(Even(), batch)
    assert float(total) == pytest.approx(3 * math.log(4), rel=1e-5)
    assert (int(count), int(facts["correct"])) == (3, 2)
    found = loss.metrics({name: float(value) for name, value in loss.predictions(Even(), batch).items()})
    assert found == pytest.approx({"loss": math.log(4), "acc": 2 / 3, "ppl": 4.0}, rel=1e-5)
    assert set(found) == set(CausalLM.metric_names)


class Fixed(nn.Module):
    def forward(self, logits):
        return logits


def loss(**keys):
    kind = losses["masked_lm"]
    return kind(kind.Parameters(**keys))


def test_the_count_is_the_number_of_masked_tokens():
    rows = {"net_input": {"logits": torch.zeros(3, 8)}, "target": torch.tensor([1, 2, 3])}
    loss_sum, count, _ = loss()(Fixed(), rows)
    assert (float(loss_sum), count) == (pytest.approx(3 * math.log(8)), 3)


def test_top5_counts_tokens_among_the_five_best():
    logits = torch.arange(8.0).expand(3, 8)
    rows = {"net_input": {"logits": logits}, "target": torch.tensor([7, 3, 2])}
    sums = {name: float(value) for name, value in loss().predictions(Fixed(), rows).items()}
    found = loss(metrics=["ppl"]).scores(sums)
    assert found["ppl"] == pytest.approx(math.exp(found["loss"]))
    assert found.keys() == losses["masked_lm"].metric_names.keys()
    assert found["acc"] == pytest.approx(1 / 3)
    assert found["top5_acc"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(sums["loss_sum"] / 3)


def test_a_batch_without_masked_tokens_adds_nothing():
    rows = {"net_input": {"logits": torch.zeros(0, 8)}, "target": torch.zeros(0, dtype=torch.int64)}
    assert float(loss()(Fixed(), rows)[0]) == 0.0
