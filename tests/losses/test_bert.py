"""Masked tokens and another task at once."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from xdpx.losses import losses


class Fixed(nn.Module):
    def forward(self, tokens, classes, input_ids, masked_positions):
        return tokens, classes


def loss(**keys):
    kind = losses["bert"]
    return kind(kind.Parameters(**keys))


def batch(*, labelled=True):
    torch.manual_seed(0)
    given = {
        "tokens": torch.randn(4, 9),
        "classes": torch.randn(3, 2),
        "input_ids": torch.zeros(3, 5, dtype=torch.int64),
        "masked_positions": torch.tensor(
            [1, 2, 3, 11]
        ),  # three of the first text, none of the second, one of the third
    }
    rows = {"net_input": given, "target": torch.tensor([1, 0, 8, 4])}
    return rows | ({"cls_target": torch.tensor([0, 1, 1])} if labelled else {})


def test_each_text_weighs_the_same_however_many_of_its_tokens_are_masked():
    rows = batch()
    given = rows["net_input"]
    nats = functional.cross_entropy(given["tokens"], rows["target"], reduction="none")
    expected = functional.cross_entropy(given["classes"], rows["cls_target"], reduction="sum")
    expected = expected + 0.5 * (nats[:3].mean() + nats[3])
    loss_sum, count, facts = loss(lm_weight=0.5)(Fixed(), rows)
    assert count == 3
    assert float(loss_sum) == pytest.approx(float(expected))
    assert float(facts["lm_loss_sum"]) == pytest.approx(float(nats.sum()))
    assert "top5_correct" not in facts, "the five likeliest are looked for in scoring only"


def test_metrics_are_those_that_are_announced():
    found = {name: value.numpy() for name, value in loss().predictions(Fixed(), batch()).items()}
    computed = loss().metrics(found)
    assert computed.keys() == {"loss", "lm_loss", "acc", "top5_acc", "cls_loss", "cls_acc", "cls_auc"}
    assert computed.keys() <= losses["bert"].metric_names.keys()
    prob = batch()["net_input"]["classes"].softmax(-1)
    assert computed["cls_acc"] == pytest.approx(float((prob.argmax(-1) == batch()["cls_target"]).float().mean()))


def test_without_labels_masked_tokens_alone_are_trained():
    found = {name: value.numpy() for name, value in loss().predictions(Fixed(), batch(labelled=False)).items()}
    assert loss().metrics(found).keys() == {"loss", "lm_loss", "acc", "top5_acc"}
    _, count, facts = loss()(Fixed(), batch(labelled=False))
    assert count == 3
    assert "cls_correct" not in facts
    assert loss().train_metrics({"loss_sum": 1.0, "count": 3.0, **{k: float(v) for k, v in facts.items()}})["acc"] >= 0


class FixedSessions(nn.Module):
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
    loss_sum, count, _ = one(FixedSessions(), rows)
    wrong = math.log1p(math.exp(1))
    first = (2 * math.log(2) + math.log1p(math.exp(-2))) / 3
    assert count == 2
    assert float(loss_sum) == pytest.approx(first + wrong + 0.5 * 2 * math.log(8), rel=1e-5)
    found = one.metrics({name: float(value) for name, value in one.predictions(FixedSessions(), rows).items()})
    assert found.keys() == kind.metric_names.keys()
    assert found["cls_acc"] == pytest.approx(3 / 5)
    assert (found["cls_precision"], found["cls_recall"], found["cls_f1"]) == (0.5, 0.5, 0.5)
    assert found["lm_loss"] == pytest.approx(math.log(8))
