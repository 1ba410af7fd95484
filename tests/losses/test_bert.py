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
