"""Losses that learn from written logits: closed forms, limits, gradients, refusals."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from xdpx.config.faults import ConfigError
from xdpx.losses import losses

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3]])
TEACHER = torch.tensor([[1.0, 0.0, -1.0], [-2.0, 3.0, 0.5]])
TARGET = torch.tensor([0, 2])


class Fixed(nn.Module):
    def __init__(self, logits=LOGITS):
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    def forward(self):
        return self.logits


def loss(name, **keys):
    kind = losses[name]
    return kind(kind.Parameters(**keys))


def batch(target=TARGET, **more):
    return {"net_input": {}, "target": target, "teacher_logits": TEACHER} | more


@pytest.mark.parametrize("heat", [1.0, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.7])
def test_static_distill_is_the_soft_divergence_and_the_weighted_likelihood(heat, share):
    found, count, facts = loss("static_distill", distill_temperature=heat, gold_loss_lambda=share)(Fixed(), batch())
    p, q = (TEACHER / heat).softmax(-1), (LOGITS / heat).softmax(-1)
    soft = heat**2 * (p * (p / q).log()).sum()
    gold = -LOGITS.log_softmax(-1)[range(2), TARGET].sum()
    assert count == 2
    assert found.item() == pytest.approx((soft + share * gold).item(), rel=1e-5)
    assert facts["kl_loss"].item() == pytest.approx(soft.item(), rel=1e-5)
    assert facts["correct"].item() == 2


@pytest.mark.parametrize("heat", [1.0, 3.0])
@pytest.mark.parametrize("several", [False, True])
def test_bce_distill_is_the_divergence_of_each_question(heat, several):
    known = {"distill_temperature": heat, "gold_loss_lambda": 0.5, "several_labels": several}
    target = functional.one_hot(TARGET, 3).float() if several else TARGET
    found, _, _ = loss("bce_distill", **known)(Fixed(), batch(target))
    first = 0 if several else 1
    p, q = (TEACHER[:, first:] / heat).sigmoid(), (LOGITS[:, first:] / heat).sigmoid()
    soft = heat**2 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum()
    answers = functional.one_hot(TARGET, 3).float()[:, first:]
    gold = functional.binary_cross_entropy_with_logits(LOGITS[:, first:], answers, reduction="sum")
    assert found.item() == pytest.approx((soft + 0.5 * gold).item(), rel=1e-5)


@pytest.mark.parametrize("name", ["static_distill", "bce_distill"])
def test_a_student_that_says_what_its_teacher_says_has_nothing_to_learn(name):
    student = Fixed(TEACHER)
    found, _, _ = loss(name, distill_temperature=2.0)(student, batch())
    found.backward()
    assert found.item() == pytest.approx(0.0, abs=1e-6)
    assert student.logits.grad.abs().max() < 1e-6


@pytest.mark.parametrize("name", ["static_distill", "bce_distill"])
def test_logits_far_out_give_finite_losses_and_slopes(name):
    student = Fixed(LOGITS * 1000)
    found, _, _ = loss(name)(student, batch())
    found.backward()
    assert torch.isfinite(found)
    assert torch.isfinite(student.logits.grad).all()


def test_a_hot_student_moves_by_the_difference_of_centred_logits():
    """Section 2.1 of the paper: at high temperatures the slope is that of squared logits, divided by the classes."""
    student = Fixed()
    loss("static_distill", distill_temperature=1e3)(student, batch())[0].backward()
    ours, theirs = (each - each.mean(dim=1, keepdim=True) for each in (LOGITS, TEACHER))
    assert torch.allclose(student.logits.grad, (ours - theirs) / 3, atol=1e-2)


@pytest.mark.parametrize(("name", "plain"), [("static_distill", "cross_entropy"), ("bce_distill", "bce")])
def test_held_out_data_are_scored_by_the_plain_loss_with_or_without_a_teacher(name, plain):
    without = {"net_input": {}, "target": TARGET}
    for given in (batch(), without):
        found = loss(name).predictions(Fixed(), given)
        wanted = loss(plain).predictions(Fixed(), without)
        assert found["loss_sum"].item() == pytest.approx(wanted["loss_sum"].item())
        assert torch.equal(found["prob"], wanted["prob"])


def test_training_data_without_logits_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"no logits\. Write the data by x-pred with distill: true"):
        loss("static_distill")(Fixed(), {"net_input": {}, "target": TARGET})


@pytest.mark.parametrize("name", ["static_distill", "bce_distill"])
def test_r_drop_is_refused(name):
    assert [key for key, _ in losses[name].Parameters(use_r_dropout=True).conflicts()] == ["use_r_dropout"]
    assert losses[name].Parameters().conflicts() == []


@pytest.mark.parametrize("name", ["static_distill", "distill", "bce_distill"])
@pytest.mark.parametrize("teacher", [TEACHER[:, :1], TEACHER[:, :2], TEACHER[:, 0], (TEACHER,)])
def test_a_teacher_of_other_classes_is_refused(name, teacher):
    with pytest.raises(ConfigError, match=r"loss: compares logits, but the teacher gives .* student gives \(2, 3\)"):
        loss(name)(Fixed(), batch(teacher_logits=teacher))


@pytest.mark.parametrize("name", ["static_distill", "distill", "bce_distill"])
def test_rows_without_labels_are_learnt_from_the_teacher_alone(name):
    chosen, bare = loss(name), {"net_input": {}, "teacher_logits": TEACHER}
    (found, count, facts), (wanted, _, with_labels) = chosen(Fixed(), bare), chosen(Fixed(), batch())
    assert (found.item(), count) == (wanted.item(), 2)
    assert chosen.train_metrics({"loss_sum": found.item(), "count": count, **facts})["acc"] != 1.0  # unknown
    both = {**facts, **with_labels, "loss_sum": 2 * found.item(), "count": 4}
    assert chosen.train_metrics(both)["acc"] == with_labels["correct"] / 2
    with pytest.raises(ConfigError, match=r"gold_loss_lambda: is 0\.5, but a row of the training data has no label"):
        loss(name, gold_loss_lambda=0.5)(Fixed(), bare)
