import math

import numpy as np
from torch import nn

from xdpx.tasks import tasks


def task():
    kind = tasks["default"]
    return kind(kind.Parameters(model="cls_cnn", loss="cross_entropy"), nn.Identity(), None)


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
