from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.integrations.integration_utils import rewrite_logs

from xdpx.reports.trackers.values import by_phase, number_in


@pytest.mark.parametrize(
    "value", [3, 3.0, np.int64(3), np.float32(3), np.array([3]), torch.tensor(3), torch.full((1, 1), 3)]
)
def test_a_number_is_found_in_whatever_holds_one(value):
    assert number_in(value) == 3.0
    assert isinstance(number_in(value), int | float)


@pytest.mark.parametrize("value", [None, "3", [3], {}, np.arange(2), torch.ones(2), np.array(["a"])])
def test_anything_else_holds_none(value):
    assert number_in(value) is None


def test_names_are_put_below_their_phase_as_the_original_does():
    logs = dict.fromkeys(["loss", "eval_loss", "test_a_b", "eval", "evaluation_loss", "train_loss"], 0)
    assert by_phase(logs) == rewrite_logs(logs)
