from __future__ import annotations

import pytest
import torch

from xdpx.engines.pytorch.transfer import to_float
from xdpx.reports.windows import Window
from xdpx.trainer.loss.windows import DataClock, over_ranks, record_losses
from xdpx.training.accumulation import MetricAccumulator

TOLD = {"samples_per_second", "steps_per_second", "data_wait_share"}


def test_outputs_named_like_losses_are_recorded_and_nothing_else() -> None:
    accumulator, fine = MetricAccumulator(to_float, windows=("log",)), torch.tensor(1.0)
    record_losses(
        accumulator,
        {
            "aux_loss": fine,
            "row_loss": torch.tensor([1.0, 2.0]),
            "z_loss": 4,
            "loss": fine,
            "no_loss": None,
            "empty_loss": torch.tensor([]),
            "loss_name": "x",
            7: fine,
        },
    )
    record_losses(accumulator, (fine,))
    found = over_ranks(accumulator.take("log"), None)
    assert {name: found[name] for name in found.keys() - TOLD} == {"aux_loss": 1.0, "row_loss": 1.5, "z_loss": 4.0}


def test_waiting_for_data_is_the_time_in_which_a_batch_is_asked_for_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, clock = DataClock(), iter([0.0, 2.0, 10.0, 13.0, 20.0, 20.5])  # asked and had, twice; asked, and no more
    monkeypatch.setattr("xdpx.trainer.loss.windows.perf_counter", lambda: next(clock))
    assert list(waits.timed(iter("ab"))) == ["a", "b"]
    assert (waits.take(), waits.take()) == (5.5, 0.0)


def test_speed_is_that_of_the_seconds_of_training() -> None:
    window = Window(1, 4.0, {"samples": 8.0, "waited": 1.0})
    assert over_ranks(window, 40) == {
        "samples_per_second": 2.0, "steps_per_second": 0.25, "tokens_per_second": 10.0, "data_wait_share": 0.25,
    }  # fmt: skip
    assert over_ranks(Window(), None) == dict.fromkeys(TOLD, 0.0)


def test_processes_are_joined_and_an_update_that_broke_on_several_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Window(3, 4.0, {"samples": 8.0, "waited": 1.0, "left_out": 1.0}, {"entropy": (4.0, 2)}, [2, 3])
    other = Window(3, 4.0, {"samples": 4.0, "waited": 3.0, "left_out": 1.0}, {"entropy": (5.0, 1)}, [3])
    monkeypatch.setattr("xdpx.engines.pytorch.collectives.gather_objects", lambda window: [window, other])
    found = over_ranks(own, None)
    assert found["entropy"] == 3.0
    assert found["samples_per_second"] == 3.0
    assert found["data_wait_share"] == 0.75
    assert found["nonfinite_steps"] == 3


def test_values_recorded_by_names_of_the_trainer_do_not_replace_what_it_logs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    window = Window(1, 4.0, {"samples": 8.0}, {"loss": (4.0, 2), "steps_per_second": (1.0, 1), "entropy": (3.0, 1)}, [])
    found = over_ranks(window, None)
    assert "loss" not in found
    assert (found["own_loss"], found["own_steps_per_second"], found["entropy"]) == (2.0, 1.0, 3.0)
    assert found["steps_per_second"] == 0.25
    assert "loss as own_loss" in capsys.readouterr().err
