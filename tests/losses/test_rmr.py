import math

import pytest
import torch
from torch import nn

from xdpx.losses import losses


class Fixed(nn.Module):
    def forward(self, told, tokens, input_ids, attention_mask, masked_positions):
        return tokens, told


def test_each_session_weighs_the_same_and_messages_of_padding_nothing():
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[1, 2] = False
    given = {
        "told": torch.tensor([[0.0, 0.0, 2.0], [-1.0, 1.0, 50.0]]), "tokens": torch.zeros(3, 8),
        "input_ids": torch.zeros(2, 3, 4), "attention_mask": mask, "masked_positions": torch.tensor([1, 5, 13]),
    }  # fmt: skip
    rows = {"net_input": given, "target": torch.tensor([1, 2, 3]), "cls_target": torch.tensor([[0, 0, 1], [1, 0, 0]])}
    kind = losses["rmr"]
    one = kind(kind.Parameters(lm_weight=0.5))
    loss_sum, count, _ = one(Fixed(), rows)
    wrong = math.log1p(math.exp(1))
    first = (2 * math.log(2) + math.log1p(math.exp(-2))) / 3
    assert count == 2
    assert float(loss_sum) == pytest.approx(first + wrong + 0.5 * 2 * math.log(8), rel=1e-5)
    found = one.metrics({name: float(value) for name, value in one.predictions(Fixed(), rows).items()})
    assert found.keys() == kind.metric_names.keys()
    assert found["cls_acc"] == pytest.approx(3 / 5)
    assert (found["cls_precision"], found["cls_recall"], found["cls_f1"]) == (0.5, 0.5, 0.5)
    assert found["lm_loss"] == pytest.approx(3.0)
