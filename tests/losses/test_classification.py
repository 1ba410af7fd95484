"""The losses over classes beside cross-entropy: closed forms, limits in which they are one another, and refusals."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from xdpx.losses import losses

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0], [0.4, 0.0, -0.7]], dtype=torch.double)
TARGET = torch.tensor([0, 2, 2, 1])
ONE_PER_ROW = ["label_smooth_ce", "taylor_ce", "focal", "bce", "ghmc"]


class Fixed(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits.clone().float())

    def forward(self):
        return self.logits


def loss(name, **keys):
    kind = losses[name]
    return kind(kind.Parameters(**keys))


def objective(name, logits=LOGITS, target=TARGET, **keys):
    return float(loss(name, **keys).objective(logits, target))


def batch(target=TARGET):
    return {"net_input": {}, "target": target}


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_label_smoothing_is_that_of_torch(smoothing):
    wanted = functional.cross_entropy(LOGITS, TARGET, label_smoothing=smoothing, reduction="sum")
    assert objective("label_smooth_ce", smoothing=smoothing) == pytest.approx(float(wanted))


def test_class_weights_multiply_the_rows_of_their_class():
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.double)
    wanted = functional.cross_entropy(LOGITS, TARGET, weight=weights, reduction="sum")
    keys = {"class_weights": weights.tolist()}
    for name, more in (("cross_entropy", {}), ("label_smooth_ce", {"smoothing": 0.0}), ("focal", {"focal_gamma": 0.0})):
        assert objective(name, **keys, **more) == pytest.approx(float(wanted))


@pytest.mark.parametrize("name", [*ONE_PER_ROW, "cross_entropy"])
def test_class_weights_of_one_change_nothing(name):
    assert objective(name, class_weights=[1.0, 1.0, 1.0]) == pytest.approx(objective(name))


def test_taylor_softmax_of_order_two_is_its_closed_form_and_a_long_series_is_softmax():
    series = 1 + LOGITS + LOGITS**2 / 2
    prob = series / series.sum(dim=1, keepdim=True)
    taylor = loss("taylor_ce")
    assert torch.allclose(taylor.probabilities(LOGITS), prob)
    assert objective("taylor_ce") == pytest.approx(float(-prob[range(4), TARGET].log().sum()))
    assert objective("taylor_ce", taylor_n=20) == pytest.approx(objective("cross_entropy"))


def test_focal_loss_weighs_a_row_by_how_wrong_it_is():
    right = LOGITS.softmax(dim=1)[range(4), TARGET]
    assert objective("focal", focal_gamma=2.0) == pytest.approx(float(-((1 - right) ** 2 * right.log()).sum()))
    assert objective("focal", focal_gamma=0.0) == pytest.approx(objective("cross_entropy"))


def test_the_slope_of_focal_loss_is_a_number_where_a_row_is_right_to_the_last_digit():
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss("focal", focal_gamma=0.5).objective(logits, torch.tensor([0])).backward()
    assert torch.isfinite(logits.grad).all()


def test_bce_asks_one_question_for_each_class_but_the_first():
    wanted = functional.binary_cross_entropy_with_logits(
        LOGITS[:, 1:], functional.one_hot(TARGET, 3)[:, 1:].double(), reduction="sum"
    )
    assert objective("bce") == pytest.approx(float(wanted))


def test_bce_predicts_no_class_where_none_reaches_its_threshold():
    prob = torch.tensor([[0.4, 0.6, 0.5], [0.7, 0.3, 0.1], [0.1, 0.9, 0.8]])
    assert loss("bce").predict(prob).tolist() == [1, 0, 1]
    assert loss("bce", predict_threshold=[0.95, 0.5]).predict(prob).tolist() == [2, 0, 2]


def test_bce_of_several_labels_asks_about_every_class():
    target = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]).float()
    several = loss("bce", several_labels=True, num_classes=3, f1_average="micro")
    wanted = functional.binary_cross_entropy_with_logits(LOGITS.float(), target, reduction="sum")
    loss_sum, count, facts = several(Fixed(LOGITS), batch(target))
    assert (float(loss_sum.detach()), count) == (pytest.approx(float(wanted)), 4)
    found = several.predictions(Fixed(LOGITS), batch(target))
    assert found["pred"].tolist() == (LOGITS >= 0).tolist()
    scores = several.metrics({name: each.detach().numpy() for name, each in found.items()})
    assert scores["acc"] == float(facts["correct"]) / 4 == 0.25
    hits, named, wanted = 5, 9, 6
    assert scores["f1"] == pytest.approx(2 * hits / (named + wanted))


def test_ghm_weights_are_those_of_the_paper_and_add_up_to_the_number_of_answers():
    ghm = loss("ghmc", bins=4, momentum=0.0)
    asked, wanted = ghm.questions(LOGITS, TARGET)
    size = (asked.sigmoid() - wanted).abs()
    index = (size * 4).long()
    counts = torch.bincount(index.flatten(), minlength=4)
    weights = size.numel() / counts[index].double() / int((counts > 0).sum())
    assert torch.allclose(ghm._harmonised(asked, wanted), weights)
    assert float(weights.sum()) == pytest.approx(size.numel())
    plain = functional.binary_cross_entropy_with_logits(asked, wanted, reduction="none")
    assert objective("ghmc", bins=4, momentum=0.0) == pytest.approx(float((plain * weights).sum()))


def test_ghm_with_a_single_range_is_bce():
    assert objective("ghmc", bins=1) == pytest.approx(objective("bce"))


def test_what_ghm_has_counted_goes_on_after_a_resume_and_held_out_data_are_not_counted():
    first, second = loss("ghmc"), loss("ghmc")
    first.objective(LOGITS, TARGET)
    kept = {name: each.clone() for name, each in first.state_dict().items()}
    assert float(first.held_out_objective(LOGITS, TARGET)) == pytest.approx(objective("bce"))
    second.load_state_dict(kept)
    other = LOGITS * 0.3
    assert float(first.objective(other, TARGET)) == float(second.objective(other, TARGET)) != objective("ghmc", other)


def circle_by_hand(similarity, target, *, scale, margin):
    total = 0.0
    for s_n in similarity[target == 0].tolist():
        for s_p in similarity[target == 1].tolist():
            push = scale * max(0, s_n + margin) * (s_n - margin)
            total += math.exp(push - scale * max(0, 1 + margin - s_p) * (s_p - 1 + margin))
    return math.log1p(total)


def test_the_similarity_of_cosines_is_exported_for_any_number_of_rows():
    class Answering(torch.nn.Module):
        def forward(self, cosines):
            return losses["circle_siamese"](losses["circle_siamese"].Parameters()).probabilities(cosines)

    rows = {0: torch.export.Dim.AUTO}
    program = torch.export.export(Answering(), (torch.rand(3),), dynamic_shapes=(rows,)).module()
    assert torch.equal(program(torch.ones(5)).round(), torch.tensor([[0.0, 1.0]] * 5))


def test_circle_loss_compares_every_pair_of_a_batch():
    logits, target = LOGITS[:, :2], torch.tensor([0, 1, 1, 0])
    similarity = logits.softmax(dim=1)[:, 1]
    wanted = circle_by_hand(similarity, target, scale=8, margin=0.25)
    assert objective("circle", logits, target, scale=8) == pytest.approx(4 * wanted)
    cosines = torch.tensor([0.9, -0.2, 0.3, 0.1], dtype=torch.double)
    wanted = circle_by_hand((1 + cosines) / 2, target, scale=32, margin=0.25)
    assert objective("circle_siamese", cosines, target) == pytest.approx(4 * wanted)


def test_a_batch_of_one_kind_costs_nothing_in_circle_loss():
    logits = LOGITS[:, :2].clone().requires_grad_()
    value = loss("circle").objective(logits, torch.ones(4, dtype=torch.long))
    value.backward()
    assert float(value.detach()) == 0.0
    assert not logits.grad.any()


def test_circle_loss_may_add_cross_entropy():
    logits, target = LOGITS[:, :2], torch.tensor([0, 1, 1, 0])
    more = objective("circle", logits, target, ce_weight=0.5) - objective("circle", logits, target)
    assert more == pytest.approx(0.5 * objective("cross_entropy", logits, target))


@pytest.mark.parametrize("name", ["circle", "circle_siamese"])
def test_circle_loss_tells_the_best_threshold(name):
    logits = LOGITS[:, :2] if name == "circle" else torch.tensor([0.9, -0.2, 0.3, 0.1])
    chosen = loss(name)
    found = chosen.predictions(Fixed(logits), batch(torch.tensor([0, 1, 1, 0])))
    scores = chosen.metrics({key: each.detach().numpy() for key, each in found.items()})
    assert {"auc", "f1", "best_f1", "threshold"} <= scores.keys()
    assert scores["best_f1"] >= scores["f1"] or math.isnan(scores["best_f1"])


@pytest.mark.parametrize("name", ONE_PER_ROW)
def test_every_loss_gives_predictions_metrics_and_facts_of_its_own(name):
    chosen, model = loss(name), Fixed(LOGITS)
    loss_sum, count, facts = chosen(model, batch())
    loss_sum.backward()
    assert torch.isfinite(model.logits.grad).all()
    shown = chosen.train_metrics({"loss_sum": float(loss_sum.detach()), "count": count, **facts})
    assert shown["loss"] > 0
    found = chosen.predictions(model, batch())
    scores = chosen.metrics({key: np.asarray(each.detach()) for key, each in found.items()})
    assert set(scores) <= set(chosen.metric_names)
    assert 0 <= scores["acc"] <= 1


@pytest.mark.parametrize("name", ["label_smooth_ce", "taylor_ce", "focal", "bce"])
def test_r_drop_of_two_equal_passes_adds_nothing(name):
    model = Fixed(LOGITS)
    once, twice = loss(name)(model, batch()), loss(name, use_r_dropout=True, kl_alpha=2.0)(model, batch())
    assert float(twice[0].detach()) == pytest.approx(float(once[0].detach()))


@pytest.mark.parametrize("name", ["taylor_ce", "bce", "cross_entropy"])
def test_disagreement_is_symmetric_and_above_nothing(name):
    chosen, other = loss(name), LOGITS.flip(1)
    assert float(chosen.disagreement(LOGITS, other)) == pytest.approx(float(chosen.disagreement(other, LOGITS)))
    assert float(chosen.disagreement(LOGITS, other)) > 0


@pytest.mark.parametrize(
    ("name", "keys", "key"),
    [
        ("taylor_ce", {"taylor_n": 3}, "taylor_n"),
        ("cross_entropy", {"class_weights": [1.0], "num_classes": 3}, "class_weights"),
        ("cross_entropy", {"class_weights": [0.0, 0.0], "num_classes": 2}, "class_weights"),
        ("bce", {"predict_threshold": [0.5, 0.5, 0.5], "num_classes": 3}, "predict_threshold"),
        ("bce", {"predict_threshold": [0.5, 0.5], "num_classes": 3, "several_labels": True}, "predict_threshold"),
        ("bce", {"class_weights": [2.0, 1.0, 1.0], "num_classes": 3}, "class_weights"),
        ("circle", {"class_weights": [1.0, 2.0]}, "class_weights"),
        ("static_distill", {"class_weights": [1.0, 2.0]}, "class_weights"),
        ("bce_distill", {"class_weights": [1.0, 2.0]}, "class_weights"),
        ("circle", {"num_classes": 3}, "num_classes"),
        ("circle", {"use_r_dropout": True}, "use_r_dropout"),
        ("focal", {"several_labels": True}, "several_labels"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(name, keys, key):
    assert [found[0] for found in losses[name].Parameters(**keys).conflicts()] == [key]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("bce", {}), ("bce", {"several_labels": True}), ("circle", {"ce_weight": 0.1}),
        ("static_distill", {"gold_loss_lambda": 0.1}), ("bce_distill", {"gold_loss_lambda": 0.1}),
    ],
)  # fmt: skip
def test_class_weights_are_taken_where_they_count(name, keys):
    first = 2.0 if "several_labels" in keys else 1.0
    assert losses[name].Parameters(class_weights=[first, 3.0], num_classes=2, **keys).conflicts() == []


@pytest.mark.parametrize(
    ("names", "told"), [(["1", "0"], "warning: loss: pairs labelled '0'"), (["0", "1"], "'1' (class 1)")]
)
def test_the_label_of_pairs_that_get_similar_vectors_is_told(names, told, capsys):
    losses["circle_siamese"](losses["circle_siamese"].Parameters()).refuse_labels(names)
    said = "".join(capsys.readouterr())
    assert told in said
    assert ("warning" in said) == (names[0] == "1")
