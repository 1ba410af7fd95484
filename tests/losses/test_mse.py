from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.parameters import RegressionParameters
from xdpx.tokenizers.target_map import TargetMap


class Given(nn.Module):
    def forward(self, score: torch.Tensor) -> torch.Tensor:
        return score


@pytest.fixture
def loss() -> Any:
    return losses["mse"](losses["mse"].Parameters(label_values=[-1.0, 0.5, 3.0]))


def test_the_loss_is_the_square_of_the_distance_to_the_label_s_number(loss: Any) -> None:
    batch = {"net_input": {"score": torch.tensor([0.0, 2.0])}, "target": torch.tensor([1, 2])}
    loss_sum, count, _ = loss(Given(), batch)
    assert (float(loss_sum), count) == (1.25, 2)
    assert loss.train_metrics({"loss_sum": 1.25, "count": 2.0}) == {"loss": 0.625}
    found = {name: value.numpy() for name, value in loss.predictions(Given(), batch).items()}
    assert found["target"].tolist() == [0.5, 3.0]
    assert loss.metrics(found) == pytest.approx({"loss": 0.625, "pearson": 1.0, "spearman": 1.0})
    assert list(loss.rows({"score": np.array([0.25, 1.0])}, None)) == [["0.25"], ["1"]]


def test_labels_are_ordered_by_their_value() -> None:
    assert TargetMap.by_value(["10", "9.5", "-1", "1e1"]).labels == ["-1", "9.5", "10", "1e1"]
    with pytest.raises(ConfigError, match="target_type.*'high' is not a number"):
        TargetMap.by_value(["1", "high"])


def test_labels_that_are_no_numbers_are_refused_before_training() -> None:
    assert [key for key, _ in RegressionParameters().conflicts()] == ["label_values"]


def test_several_numbers_for_a_row_are_refused_also_where_they_are_as_many_as_the_rows(loss: Any) -> None:
    batch = {"net_input": {"score": torch.zeros(2, 2)}, "target": torch.tensor([1, 2])}
    with pytest.raises(ConfigError, match=r"shape \(2,\) for each row.*cnn_regression"):
        loss(Given(), batch)
