from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from xdpx.trainer.files.state import ExportableState, TrainerState, restore_states, states_of


class Counting(ExportableState):
    def __init__(self, start: int = 0) -> None:
        self.start, self.count = start, 0

    def state(self) -> dict[str, Any]:
        return {"args": {"start": self.start}, "attributes": {"count": self.count}}


def _filled(kind: Any) -> Any:
    history = [{"loss": 1.5, "step": 5}, {"eval_loss": float("nan"), "step": 5}]
    state = kind(epoch=1.5, global_step=7, max_steps=9, train_batch_size=4, total_flos=1e18, best_metric=0.25)
    state.log_history, state.best_model_checkpoint, state.trial_params = history, "out/checkpoint-5", {"lr": 0.1}
    state.stateful_callbacks = {"Counting": {"args": {}, "attributes": {"count": 1}}}
    return state


def test_the_file_has_the_bytes_that_the_original_writes(tmp_path: Path) -> None:
    _filled(TrainerState).save_to_json(tmp_path / "ours.json")
    _filled(transformers.TrainerState).save_to_json(str(tmp_path / "theirs.json"))
    assert (tmp_path / "ours.json").read_bytes() == (tmp_path / "theirs.json").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["ours.json", "theirs.json"]


def test_either_reads_what_the_other_wrote(tmp_path: Path) -> None:
    _filled(transformers.TrainerState).save_to_json(str(tmp_path / "theirs.json"))
    ours = TrainerState.load_from_json(tmp_path / "theirs.json")
    assert ours.to_json() == _filled(TrainerState).to_json()
    ours.save_to_json(tmp_path / "ours.json")
    theirs = transformers.TrainerState.load_from_json(str(tmp_path / "ours.json"))
    assert {**vars(theirs), "log_history": 0} == {**vars(ours), "log_history": 0}


def test_new_states_are_equal_field_by_field() -> None:
    assert vars(TrainerState()) == vars(transformers.TrainerState())
    assert TrainerState().log_history is not TrainerState().log_history


def test_a_file_of_an_older_version_leaves_the_rest_as_it_is_at_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"global_step": 3, "best_metric": null}')
    assert TrainerState.load_from_json(tmp_path / "state.json") == TrainerState(global_step=3)


def test_a_field_of_a_newer_version_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state.json").write_text('{"global_step": 3, "mood": "good"}')
    assert TrainerState.load_from_json(tmp_path / "state.json").global_step == 3
    assert "mood: from another version, and not used" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", '{"global_step": 3', "[1, 2]", "\x00\x00"])
def test_a_file_that_is_not_whole_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ValueError, match=r"state\.json: contains no trainer state .* Resume from another"):
        TrainerState.load_from_json(tmp_path / "state.json")


def test_numbers_of_numpy_and_torch_are_written_as_numbers() -> None:
    row = {"f1": np.float32(0.5), "each": np.array([1, 2]), "loss": torch.tensor(2.0)}
    assert json.loads(TrainerState(log_history=[row]).to_json())["log_history"] == [
        {"f1": 0.5, "each": [1, 2], "loss": 2.0}
    ]


def test_what_json_cannot_hold_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"trainer_state\.json cannot hold .*\(object\)\. Log numbers, strings"):
        TrainerState(log_history=[{"loss": object()}]).to_json()


@pytest.mark.parametrize(("logging", "evaluating", "saving"), [(10, None, 20), (0.1, 0.25, 0.003), (1, 1, 1)])
@pytest.mark.parametrize("total", [7, 100, 333])
def test_steps_below_one_are_shares_of_the_whole_as_in_the_original(logging, evaluating, saving, total) -> None:
    args = SimpleNamespace(logging_steps=logging, eval_steps=evaluating, save_steps=saving)
    ours, theirs = TrainerState(), transformers.TrainerState()
    ours.compute_steps(args, total)
    theirs.compute_steps(args, total)
    assert vars(ours) == vars(theirs)


@pytest.mark.parametrize("trial", [None, {"lr": 0.1}, SimpleNamespace(params={"lr": 0.1})])
def test_the_beginning_of_a_training_is_taken_down(trial: Any) -> None:
    trainer = SimpleNamespace(
        hp_name=lambda one: "third",
        _trial=trial,
        is_local_process_zero=lambda: True,
        is_world_process_zero=lambda: False,
    )
    state = TrainerState()
    state.init_training_references(trainer, 30, 3, trial)
    assert (state.max_steps, state.num_train_epochs, state.is_world_process_zero) == (30, 3, False)
    assert state.trial_params == (None if trial is None else {"lr": 0.1})
    assert state.trial_name == (None if trial is None else "third")


# ---- callbacks


def test_callbacks_are_kept_by_class_name_and_in_a_list_where_there_are_several() -> None:
    control = transformers.TrainerControl(should_save=True)
    callbacks = [Counting(1), Counting(2), control]
    ours = TrainerState(stateful_callbacks=callbacks).stateful_callbacks
    assert [state["args"]["start"] for state in ours["Counting"]] == [1, 2]
    assert ours["TrainerControl"] == control.state()
    assert states_of(callbacks) == ours


def test_a_callback_without_a_state_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="stateful_callbacks: SimpleNamespace has no state to save"):
        TrainerState(stateful_callbacks=[SimpleNamespace()])


def test_a_class_that_forgot_its_state_is_told_how_to_write_one() -> None:
    with pytest.raises(NotImplementedError, match="Forgetful has no `state`. Define it, e.g. to return"):
        type("Forgetful", (ExportableState,), {})().state()


def test_states_come_back_to_the_very_objects_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Counting(5), Counting(6)
    saved = {"Counting": [{"args": {"start": 1}, "attributes": {"count": count}} for count in (8, 9)], "Gone": {}}
    restore_states([first, SimpleNamespace(), second], saved)
    assert [(first.start, first.count), (second.start, second.count)] == [(1, 8), (1, 9)]
    assert "callbacks not included in current configuration. Ignoring. (Gone)" in capsys.readouterr().err


def test_a_callback_of_the_original_is_kept_and_comes_back() -> None:
    then, now = transformers.EarlyStoppingCallback(4), transformers.EarlyStoppingCallback(1)
    then.early_stopping_patience_counter = 3
    restore_states([now], json.loads(TrainerState(stateful_callbacks=[then]).to_json())["stateful_callbacks"])
    assert vars(now) == vars(then)
