import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.inference import answers
from xdpx.losses import losses
from xdpx.losses.base import Loss
from xdpx.models import models
from xdpx.tasks import scoring, tasks


def task(model=None, loss=None):
    kind = tasks["default"]
    return kind(kind.Parameters(model="mine", loss="cross_entropy"), model or nn.Identity(), loss or Loss(None))


def test_rows_show_label_probabilities_and_the_probability_of_the_target():
    found = {"prob": np.array([[0.25, 0.75]], dtype=np.float32), "pred": np.array([1]), "target": np.array([0])}
    assert list(task().rows(found, ["no", "yes"])) == [["yes", "[0.25, 0.75]", "0.25"]]
    assert task().header() == ["pred", "prob", "target_prob"]


def test_without_a_target_the_probability_of_the_prediction_is_shown():
    found = {"prob": np.array([[0.25, 0.75]]), "pred": np.array([1])}
    assert list(task().rows(found)) == [["1", "[0.25, 0.75]", "0.75"]]


def test_an_unknown_target_has_no_probability():
    found = {"prob": np.array([[0.25, 0.75]]), "pred": np.array([1]), "target": np.array([-1])}
    assert math.isnan(float(next(task().rows(found))[2]))


class Sum(nn.Module):
    def forward(self, tokens, mask=None):
        return tokens.float() + "" if mask is not None else tokens.float()


def test_a_processor_that_the_model_cannot_read_is_named():
    cross_entropy = losses["cross_entropy"]
    scored = task(Sum(), cross_entropy(cross_entropy.Parameters()))
    assert "prob" in scored.valid_step({"net_input": {"tokens": torch.ones(1, 2)}})
    with pytest.raises(ConfigError, match="'mine' takes tokens, mask, but the processor gives tokens1, tokens2"):
        scored.valid_step({"net_input": {"tokens1": torch.ones(1, 2), "tokens2": torch.ones(1, 2)}})
    with pytest.raises(TypeError):  # a fault of the model stays one
        scored.valid_step({"net_input": {"tokens": torch.ones(1, 2), "mask": torch.ones(1, 2)}})


def test_a_network_of_another_family_is_named(monkeypatch):
    monkeypatch.setitem(models._loaded, "mine", Sum)
    with pytest.raises(ConfigError, match=r"model: 'mine' is of the class Sum, .* Derive it from .*base\.Model"):
        models["mine"]


@pytest.mark.parametrize("odd", [["a"], ["a", "b", "c"], ["a", 2], "ab"])
def test_a_row_of_other_cells_than_the_header_names_is_the_fault_of_the_loss(odd):
    class Mine(Loss):
        header = ("left", "right")

        def rows(self, predictions, labels):
            return iter([["a", "b"], odd])

    with pytest.raises(ConfigError, match=r"'Mine\.rows' returns .*\. Yield 2 texts for each sample: left, right"):
        list(task(loss=Mine(None)).rows({}))


def test_columns_rows_and_classes_that_are_no_list_are_refused_by_the_class_of_the_loss():
    class Odd(Loss):
        def columns(self):
            return None

        def rows(self, predictions, labels):
            return 5

        def keys_by_class(self):
            return []

        def about_one_class(self, names, num_classes):
            return {}

        def refuse_grades(self, names, labels):
            pass

        def each_class(self, gathered, labels):
            return None

        def metrics(self, gathered):
            return {}

    odd = task(loss=Odd(None))
    with pytest.raises(ConfigError, match=r"loss: 'Odd.columns' returns None. Return a list of texts"):
        odd.header()
    with pytest.raises(ConfigError, match=r"loss: 'Odd.each_class' returns None. Return a list of ClassScore"):
        scoring._scores({"pred": np.array([1])}, odd.loss, None)
    Odd.columns = Loss.columns
    with pytest.raises(ConfigError, match=r"loss: 'Odd.rows' returns 5. Yield the cells"):
        list(odd.rows({}))


def test_labels_from_python_are_those_that_x_pred_writes_for_a_loss_with_rows_of_its_own():
    class Sure(Loss):
        def rows(self, predictions, labels):
            return ([labels[int(prob[1] > 0.9)], str(prob.tolist()), "1"] for prob in predictions["prob"])

    found = {"prob": np.array([[0.2, 0.8], [0.05, 0.95]]), "pred": np.array([1, 1])}
    sure, labels = task(loss=Sure(None)), ["no", "yes"]
    predictor = SimpleNamespace(
        columns=tuple(sure.header()), labels=labels, own_rows=lambda found: sure.own_rows(found, labels)
    )
    told = list(answers._said(predictor, found))
    assert [one.label for one in told] == [row[0] for row in sure.rows(found, labels)]
    assert [(one.label, one.labels, one.probabilities["yes"]) for one in told] == [
        ("no", ("no",), 0.8),
        ("yes", ("yes",), 0.95),
    ]
