import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.base import output_of
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.metrics.named import OF_QUERIES


class Fixed(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self):
        return self.logits


class Noisy(Fixed):
    def forward(self):
        return nn.functional.dropout(self.logits, 0.5, training=True)


def loss(**keys):
    kind = losses["cross_entropy"]
    return kind(kind.Parameters(**keys))


def batch(*target):
    return {"net_input": {}, "target": torch.tensor(target)}


def gathered(prob, target, **more):
    prob = np.array(prob)
    return {"prob": prob, "pred": prob.argmax(1), "target": np.array(target), "loss_sum": 1.0, "count": 1.0, **more}


def test_the_sum_runs_over_rows_in_nats():
    loss_sum, count, facts = loss()(Fixed([[0.0, 0.0], [0.0, 0.0]]), batch(0, 1))
    assert (float(loss_sum), count) == (pytest.approx(2 * math.log(2)), 2)
    assert int(facts["correct"]) == 1


def test_metrics_show_the_loss_in_nats_and_where_asked_for_in_bits():
    facts = {"loss_sum": 4 * math.log(2), "count": 2.0, "correct": 1.0}
    assert loss().train_metrics(facts) == {"loss": pytest.approx(2 * math.log(2)), "acc": 0.5}
    assert loss(loss_unit="bits").train_metrics(facts) == {"loss": pytest.approx(2.0), "acc": 0.5}


def test_a_loss_that_is_no_number_shows_as_nan():
    loss_sum, count, facts = loss()(Fixed([[math.nan, 0.0]]), batch(0))
    shown = loss().train_metrics({"loss_sum": float(loss_sum), "count": count, "correct": float(facts["correct"])})
    assert math.isnan(shown["loss"])


def test_predictions_have_rows_and_sums():
    found = loss().predictions(Fixed([[0.0, 2.0], [1.0, 0.0]]), batch(1, 1))
    assert found["pred"].tolist() == [1, 0]
    assert found["prob"].sum(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert int(found["count"]) == 2


def test_unlabelled_batches_are_predicted_all_the_same():
    assert "target" not in loss().predictions(Fixed([[0.0, 2.0]]), {"net_input": {}})


def test_below_the_threshold_the_negative_class_is_predicted():
    chosen = loss(predict_threshold=0.6, negative_classes_in_f1=[2])
    found = chosen.predictions(
        Fixed(np.log([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]).tolist()), batch(0, 0, 0)
    )
    assert found["pred"].tolist() == [0, 2, 2]


def test_two_classes_have_an_area_under_the_curve():
    found = loss(f1_average="binary").metrics(gathered([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], [0, 1, 0]))
    assert found["auc"] == 1.0
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["acc"] == pytest.approx(2 / 3)


def test_f1_is_macro_unless_another_average_is_named() -> None:
    rows = gathered([[0.9, 0.1]] * 4 + [[0.2, 0.8]], [0, 0, 0, 1, 1])
    assert loss().metrics(rows)["f1"] == pytest.approx((6 / 7 + 2 / 3) / 2)
    assert loss(f1_average="micro").metrics(rows)["f1"] == loss().metrics(rows)["acc"]


def test_f1_of_several_labels_stays_micro_unless_another_average_is_named() -> None:
    known = losses["bce"].Parameters(several_labels=True, num_classes=3)
    assert (known.average, losses["bce"].Parameters(num_classes=3).average) == ("micro", "macro")


def test_each_class_is_scored_by_its_name() -> None:
    rows = gathered([[0.9, 0.1]] * 4 + [[0.2, 0.8]], [0, 0, 0, 1, 1])
    assert loss().each_class(rows, ["no", "yes"]) == [("no", 0.75, 1.0, 6 / 7, 3, 4), ("yes", 1.0, 0.5, 2 / 3, 2, 1)]
    assert [one.name for one in loss().each_class(rows, ["of", "other", "data"])] == ["0", "1"]


def test_each_of_several_labels_is_scored_by_itself() -> None:
    several = losses["bce"](losses["bce"].Parameters(several_labels=True, num_classes=2))
    found = several.each_class({"target": np.array([[1, 1], [0, 1]]), "pred": np.array([[1, 0], [1, 1]])}, None)
    assert [one.precision for one in found] == [0.5, 1.0]
    assert [(one.name, one.recall, one.num_rows) for one in found] == [("0", 1.0, 1), ("1", 0.5, 2)]


def test_query_level_scores_look_at_the_best_row_of_a_query():
    rows = gathered([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], [0, 1, 0], query_id=np.array([1, 1, 1]))
    assert loss(query_level_f1=True, f1_average="binary").metrics(rows)["f1"] == 1.0


def graded_rows() -> tuple[list[float], dict[str, Any]]:
    """Return the grades of three classes numbered by frequency, and rows whose order by expected grade is all wrong."""
    prob = [[0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [0.8, 0.1, 0.1]]
    return [0.0, 5.0, 1.0], gathered(prob, [2, 0, 1], query_id=np.array([7, 7, 7]))


def test_metrics_of_queries_go_by_the_grades_of_labels_and_rows_rank_by_the_expected_one():
    grades, rows = graded_rows()
    scores = loss(label_values=grades, metrics=["ndcg", "mrr", "hit@1"], num_classes=3).scores(rows)
    # Expected grades 4.1, 1.1, 0.6: the rows rank as they stand, with gains 1, 0, 5.
    assert scores["ndcg"] == pytest.approx((1 + 5 / 2) / (5 + 1 / np.log2(3)))
    assert (scores["mrr"], scores["hit@1"]) == (1.0, 1.0)


def test_of_two_grades_the_higher_one_is_relevant_whichever_class_it_is():
    rows = gathered([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], [0, 1, 1], query_id=np.array([1, 1, 1]))
    assert loss(label_values=[1.0, 0.0], metrics=["mrr"]).scores(rows)["mrr"] == 1.0
    assert loss(metrics=["mrr"]).scores(rows)["mrr"] == 1.0
    best = loss(label_values=[1.0, 0.0], query_level_f1=True, f1_average="micro")
    assert best.metrics(rows)["f1"] == 1.0


def test_labels_that_are_other_numbers_than_their_classes_are_refused_as_grades(capsys):
    with pytest.raises(ConfigError, match=r"null, so in ndcg@3 a label's grade .* Set label_values: \[0.0, 5.0, 1.0\]"):
        loss().refuse_grades(["mcc", "ndcg@3"], ["0", "5", "1"])
    loss().refuse_grades(["mcc"], ["0", "5", "1"])
    loss(label_values=[0.0, 5.0, 1.0]).refuse_grades(["ndcg"], ["0", "5", "1"])
    loss().refuse_grades(["mrr"], ["no", "yes"])
    assert "counts as" not in "".join(capsys.readouterr())
    loss().refuse_grades(["mrr"], ["fair", "good", "bad"])
    assert "warning: label_values: null, so in mrr" in "".join(capsys.readouterr())
    assert loss().about_one_class(["mrr"], 2) == {"mrr": 1}
    assert loss(label_values=[1.0, 0.0]).about_one_class(["mrr", "average_precision"], 2) == {"average_precision": 1}


def test_query_level_scores_without_queries_are_refused():
    with pytest.raises(ConfigError, match="no query ids"):
        loss(query_level_f1=True).metrics(gathered([[0.9, 0.1]], [0]))


def test_r_dropout_adds_nothing_when_both_passes_agree():
    model, rows = Fixed([[0.3, -0.2]]), batch(0)
    once, twice = loss()(model, rows), loss(use_r_dropout=True, kl_alpha=3.0)(model, rows)
    assert float(twice[0]) == pytest.approx(float(once[0]))
    assert float(twice[2]["kl_loss"]) == 0.0


def test_r_dropout_punishes_disagreement_in_proportion_to_alpha():
    rows, found = batch(0), {}
    for alpha in (0.0, 1.0, 2.0):
        torch.manual_seed(5)
        found[alpha] = float(loss(use_r_dropout=True, kl_alpha=alpha)(Noisy([[3.0, -2.0, 1.0, 0.5]]), rows)[0])
    assert found[1.0] > found[0.0]
    assert found[2.0] - found[0.0] == pytest.approx(2 * (found[1.0] - found[0.0]))


@pytest.mark.parametrize(
    "keys",
    [
        {"negative_classes_in_f1": [3], "num_classes": 3},
        {"f1_average": "binary", "num_classes": 3},
        {"negative_classes_in_f1": [0, 1], "num_classes": 2},
    ],
)
def test_settings_that_need_other_classes_are_refused(keys):
    assert losses["cross_entropy"].Parameters(**keys).conflicts()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_metrics_are_those_it_says_it_has(classes):
    prob, target = np.eye(classes), np.arange(classes)
    known = {name for name, when in CrossEntropy.metric_names.items() if when in (None, ("num_classes", "is", classes))}
    asked = sorted(name.replace("*", "1") for name in known - OF_QUERIES.keys())
    found = loss(num_classes=classes, metrics=asked).scores(gathered(prob, target))
    assert found.keys() == set(asked)


class GivesADict(nn.Module):
    def forward(self, tokens):
        return {"logits": tokens.float()}


def test_a_model_that_gives_something_else_than_a_tensor_is_named():
    batch = {"net_input": {"tokens": torch.ones(2, 2)}, "target": torch.zeros(2, dtype=torch.long)}
    with pytest.raises(ConfigError, match="model: 'GivesADict' returns dict, but this loss reads a tensor. Return"):
        output_of(GivesADict(), batch)
    doubled = {"net_input": {"input": torch.ones(2, 2).double()}}
    assert output_of(nn.Linear(2, 1).double(), doubled).dtype == torch.float32


@pytest.mark.parametrize("name", ["bert", "tagging", "rmr", "electra", "bert_qa", "causal_lm"])
def test_two_rows_of_classes_are_not_taken_for_two_outputs_or_for_rows_of_tokens(name):
    batch = {"net_input": {"input": torch.ones(2, 3)}, "target": torch.zeros(2, dtype=torch.long)}
    keys = {key: 8 for key in ("max_len",) if key in losses[name].Parameters.model_fields}
    with pytest.raises(ConfigError, match=r"model: 'Identity' returns .*, but this loss reads .*families"):
        losses[name](losses[name].Parameters(**keys))(nn.Identity(), batch)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 1, 2), (2, 3)])
def test_logits_of_another_shape_than_rows_and_classes_are_the_models_fault(shape):
    batch = {"net_input": {"input": torch.ones(shape)}, "target": torch.zeros(2, dtype=torch.long)}
    for ask in (loss(num_classes=2), loss(num_classes=2).predictions):
        with pytest.raises(ConfigError, match=r"model: 'Identity' returns .* for 2 rows and 2 classes\. Return logits"):
            ask(nn.Identity(), batch)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([f"{number / 4}" for number in range(30)], True),
        ([str(number) for number in range(30)], False),  # numbers as names, such as years
        (["0.5", "1.5", "2"], False),  # grades
        ([f"{number / 4} EUR" for number in range(30)], False),
    ],
)
def test_many_numbers_with_fractions_as_classes_are_told(names, told, caplog):
    loss().refuse_labels(names)
    assert ("as 30 classes. To predict numbers, use loss: mse" in caplog.text) == told


def test_two_passes_that_dropout_does_not_tell_apart_are_told_of(caplog):
    dropping = loss(use_r_dropout=True)
    torch.manual_seed(0)
    dropping(Noisy([[1.0, 2.0], [3.0, 4.0]]), batch(0, 1))
    assert "two passes" not in caplog.text
    loss(use_r_dropout=True)(Fixed([[1.0, 2.0], [3.0, 4.0]]), batch(0, 1))
    assert "two passes over the first batch gave the same numbers" in caplog.text
