from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from xdpx.reports.trackers.console import Bars, shown


class Endless(IterableDataset):
    def __iter__(self):
        yield 1


def _state(**changes: Any) -> Any:
    first = {"is_world_process_zero": True, "global_step": 0, "max_steps": 4}
    return SimpleNamespace(**{**first, **changes})


@pytest.fixture
def bars():
    made = Bars()
    yield made
    made.on_train_end(None, _state(), None)
    made.on_evaluate(None, _state(), None)


def test_a_resumed_training_begins_its_bar_where_it_stands(bars):
    bars.on_train_begin(None, _state(global_step=3), None)
    assert (bars.training_bar.n, bars.training_bar.initial, bars.training_bar.total) == (3, 3, 4)
    bars.on_step_end(None, _state(global_step=4), None)
    assert bars.training_bar.n == 4


def test_an_evaluation_has_a_bar_of_its_own_while_it_runs(bars):
    bars.on_train_begin(None, _state(), None)
    for _ in range(2):
        bars.on_prediction_step(None, _state(), None, eval_dataloader=[1, 2, 3])
    assert (bars.prediction_bar.n, bars.prediction_bar.total, bars.prediction_bar.leave) == (2, 3, False)
    bars.on_evaluate(None, _state(), None)
    assert bars.prediction_bar is None


@pytest.mark.parametrize("loader", [None, DataLoader(Endless())])
def test_data_without_a_length_have_no_bar(bars, loader):
    bars.on_prediction_step(None, _state(), None, eval_dataloader=loader)
    assert bars.prediction_bar is None


def test_other_processes_show_nothing(bars, capsys):
    state = _state(is_world_process_zero=False)
    bars.on_train_begin(None, state, None)
    bars.on_step_end(None, state, None)
    bars.on_prediction_step(None, state, None, eval_dataloader=[1])
    bars.on_log(None, state, None, logs={"loss": 1.0})
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_what_is_shown_is_short_and_a_copy():
    logs = {"loss": 0.123456, "step": 7, "text": "abcdef", "total_flos": 1.0}
    assert shown(logs, 3) == {"loss": "0.1235", "step": 7, "text": "[a text of 6 characters; `max_str_len` is 3]"}
    assert shown(logs)["text"] == "abcdef"
    assert logs["loss"] == 0.123456
