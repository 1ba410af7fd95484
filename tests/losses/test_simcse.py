import math

import pytest
import torch
from torch import nn

from xdpx.losses import losses
from xdpx.losses.simcse import contrast


class Fixed(nn.Module):
    def forward(self, vectors):
        return vectors


def loss(**keys):
    kind = losses["simcse"]
    return kind(kind.Parameters(**keys))


def test_the_loss_is_that_of_the_paper():
    torch.manual_seed(0)
    vectors = torch.randn(4, 3, 5)
    loss_sum, count, _ = loss(temperature=0.1)(Fixed(), {"net_input": {"vectors": vectors}})
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    expected = 0.0
    for row in range(4):
        far = [math.exp(float(unit[row, 0] @ unit[other, view]) / 0.1) for other in range(4) for view in (1, 2)]
        expected -= math.log(math.exp(float(unit[row, 0] @ unit[row, 1]) / 0.1) / sum(far))
    assert count == 4
    assert float(loss_sum) == pytest.approx(expected, rel=1e-4)


def test_held_out_pairs_are_compared_with_their_labels():
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    vectors = torch.stack(
        [torch.stack([first, first]), torch.stack([first, first + second]), torch.stack([first, second])]
    )
    rows = {"net_input": {"vectors": vectors}, "target": torch.tensor([2, 1, 0])}
    found = {name: value.numpy() for name, value in loss().predictions(Fixed(), rows).items()}
    assert loss(metrics=["spearman"]).scores(found)["spearman"] == pytest.approx(1.0)
    assert loss().metrics(found).keys() == {"loss", "acc"}


def test_what_is_compared_has_no_length():
    logits, right = contrast(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.5, 0.0], [0.0, 9.0]]), temperature=0.5)
    assert logits.tolist() == [[2.0, 0.0]]
    assert right.tolist() == [0]


def test_masked_words_and_contrast_add_up():
    class Twice(nn.Module):
        def forward(self, input_ids, masked_positions):
            return torch.zeros(3, 8), torch.eye(2)

    kind = losses["bert_pretrain_cl"]
    given = {"input_ids": torch.zeros(2, 5), "masked_positions": torch.tensor([1, 2, 6])}
    rows = {"net_input": given, "target": torch.tensor([1, 0, 7])}
    one = kind(kind.Parameters(temperature=1.0, lm_weight=0.5))
    loss_sum, count, facts = one(Twice(), rows)
    assert count == 2
    assert float(loss_sum) == pytest.approx(2 * math.log(1 + math.exp(-1)) + 0.5 * 2 * math.log(8), rel=1e-5)
    sums = {name: value.numpy() for name, value in one.predictions(Twice(), rows).items()}
    assert one.metrics(sums).keys() == kind.metric_names.keys()
    assert {"cl_correct", "lm_count"} <= facts.keys()
