"""Losses that give a mean where a sum is wanted."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from xdpx.losses import losses
from xdpx.losses.base import Loss
from xdpx.losses.parameters import LossParameters
from xdpx.losses.sums import gives_mean

CrossEntropy = losses["cross_entropy"]


class Given(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, rows):
        return self.layer(rows)


class Own(Loss):
    """Cross-entropy: (sum, rows) as it should be, or the mean of the rows, beside a count."""

    def __init__(self, reduction, count):
        super().__init__(LossParameters())
        self.reduction, self.count = reduction, count

    def __call__(self, model, batch):
        logits, target = model(**batch["net_input"]), batch["target"]
        return functional.cross_entropy(logits, target, reduction=self.reduction), self.count or len(target), {}


def batch(rows=9):
    random = np.random.default_rng(0)
    given = {"rows": random.normal(size=(rows, 3)).astype(np.float32)}
    return {"id": np.arange(rows), "net_input": given, "target": random.integers(0, 2, rows), "ntokens": rows}


@pytest.mark.parametrize(
    ("reduction", "count", "wrong"), [("mean", None, True), ("sum", None, False), ("mean", 1, False)]
)
def test_a_mean_that_would_be_divided_again_is_told_from_a_sum(reduction, count, wrong):
    torch.manual_seed(0)
    model = Given().train()
    assert gives_mean(Own(reduction, count), model, batch()) == wrong
    assert model.training


def test_what_cannot_be_told_is_taken_for_right():
    model = Given()
    assert not gives_mean(Own("mean", None), model, batch(1))
    assert not gives_mean(Own("mean", None), model, batch() | {"places": np.arange(4)})
    assert not gives_mean(Own("mean", None), model, {"id": np.arange(4), "net_input": {}})
    assert not gives_mean(CrossEntropy(CrossEntropy.Parameters()), model, batch())
