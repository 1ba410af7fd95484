from typing import Any

import pytest

from xdpx.losses.bce import BinaryCrossEntropy
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.mse import MeanSquaredError
from xdpx.runs.parameters import TrainParameters
from xdpx.runs.rules import evaluation_plan, stop_rules


def settings(**values: Any) -> TrainParameters:
    needed = {
        "data_dir": "data",
        "save_dir": "run",
        "batch_size": 4,
        "max_update": 9,
        "eval_interval": 2,
        "processor": "single",
        "major_metric": "acc",
    }
    return TrainParameters(**needed | values, learning_rate=0.1, eval_interval_warmup=4)


@pytest.mark.parametrize(
    ("values", "multiplier"),
    [
        ({}, 6),
        ({"eval_interval_warmup_mutiplier": 3}, 3),
        ({"eval_interval_warmup_multiplier": 2}, 2),
        ({"eval_interval_warmup_multiplier": 2, "eval_interval_warmup_mutiplier": 2}, 2),
    ],
)
def test_the_multiplier_is_understood_in_both_spellings(values: dict[str, int], multiplier: int) -> None:
    assert settings(**values).conflicts() == []
    assert evaluation_plan(settings(**values)).warmup_multiplier == multiplier


def test_two_spellings_with_two_values_are_refused() -> None:
    found = settings(eval_interval_warmup_multiplier=2, eval_interval_warmup_mutiplier=3).conflicts()
    assert found == [
        ("eval_interval_warmup_mutiplier", "is 3, but eval_interval_warmup_multiplier is 2. Keep one of them.")
    ]


def test_a_loss_of_any_size_stops_a_run_only_above_a_limit_that_was_set() -> None:
    for kind, highest in ((CrossEntropy, 200.0), (MeanSquaredError, float("inf")), (BinaryCrossEntropy, float("inf"))):
        assert stop_rules(settings(), loss_of_any_size=kind.of_any_size).max_loss == highest
        assert stop_rules(settings(max_loss=200.0), loss_of_any_size=kind.of_any_size).max_loss == 200.0


@pytest.mark.parametrize("name", ["loss", "mse", "mae", "ppl", "lm_loss", "layer_3_loss"])
def test_the_largest_error_is_never_the_best(name):
    assert [key for key, _ in settings(major_metric=name).conflicts()] == ["ascending_metric"]
    assert settings(major_metric=name, ascending_metric=False).conflicts() == []


@pytest.mark.parametrize("name", ["acc", "spearman", "simplicity", "acc_interval"])
def test_other_metrics_may_be_better_the_larger_they_are(name):
    assert settings(major_metric=name).conflicts() == []
