from __future__ import annotations

import pytest
import torch

from xdpx.reports.windows import Stopwatch
from xdpx.trainer.loss.windows import KEPT_AT_MOST, LogWindow

FINE = torch.tensor(1.0)
NAN = torch.tensor(float("nan"))


def test_what_is_recorded_is_given_as_its_mean_once() -> None:
    window = LogWindow()
    for value in (1.0, torch.tensor(3.0), torch.tensor([5.0])):
        window.record("entropy", value)
    assert window.take(None, finite=True)["entropy"] == 3.0
    assert "entropy" not in window.take(None, finite=True)


def test_outputs_named_like_losses_are_recorded_and_nothing_else() -> None:
    window = LogWindow()
    window.note({"aux_loss": FINE, "row_loss": torch.tensor([1.0, 2.0]), "z_loss": 4, "loss": FINE, "no_loss": None,
                 "empty_loss": torch.tensor([]), "loss_name": "x", 7: FINE})  # fmt: skip
    window.note((FINE,))
    found = {name: value for name, value in window.take(None, finite=True).items() if name.endswith("loss")}
    assert found == {"aux_loss": 1.0, "row_loss": 1.5, "z_loss": 4.0}


@pytest.mark.parametrize("steps", [3, KEPT_AT_MOST + 3])
def test_updates_are_counted_whose_loss_or_norm_is_not_finite(steps: int) -> None:
    window = LogWindow()
    facts = {0: (NAN, FINE), 1: (FINE, NAN), steps - 1: (NAN, NAN)}
    for step in range(steps):
        window.take_step(*facts.get(step, (FINE, FINE)))
    assert window.take(None, finite=False)["nonfinite_steps"] == 3
    window.take_step(FINE, FINE)
    assert "nonfinite_steps" not in window.take(None, finite=True)


def test_speed_is_that_since_the_last_look_without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 13.0, 15.0, 16.0])  # made, begun, rested from and to, looked at twice
    monkeypatch.setattr("xdpx.trainer.loss.windows.Stopwatch", lambda: Stopwatch(lambda: next(clock)))
    window = LogWindow()
    window.begin(tokens=100)
    with window.resting():
        pass
    window.samples, window.waited = 8, 1.0
    window.take_step(FINE, FINE)
    found = window.take(140, finite=True)
    assert found["steps_per_second"] == 0.25
    assert found["samples_per_second"] == 2
    assert found["tokens_per_second"] == 10
    assert found["data_wait_share"] == 0.25
    assert window.take(140, finite=True)["samples_per_second"] == 0


def test_waiting_for_data_is_the_time_in_which_a_batch_is_asked_for_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window, clock = LogWindow(), iter([0.0, 2.0, 10.0, 13.0, 20.0, 20.5])  # asked and had, twice; asked, and no more
    monkeypatch.setattr("xdpx.trainer.loss.windows.perf_counter", lambda: next(clock))
    assert list(window.waiting(iter("ab"))) == ["a", "b"]
    assert window.waited == 5.5


def test_updates_that_were_left_out_are_counted_over_the_whole_stretch() -> None:
    window = LogWindow()
    window.skipped = 2
    assert window.take(None, finite=True)["nonfinite_steps"] == 2
    window.skipped += 1
    assert window.skipped_in_all == 3
    window.begin(0)
    assert window.skipped_in_all == 0
