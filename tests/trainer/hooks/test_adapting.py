from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.config.faults import ConfigError
from xdpx.reports.growing_table import GrowingTable
from xdpx.trainer.hooks.adapting import CallbackAdapter
from xdpx.trainer.hooks.builtin import EarlyStoppingCallback
from xdpx.trainer.hooks.events import TrainerCallback
from xdpx.trainer.hooks.state import ExportableState
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.callbacks.evaluating import EVALUATION, Evaluating, EvaluationPlan
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.callbacks.saving import SavePolicy, Saving, restore
from xdpx.training.loop import Session, Stop, fit
from xdpx.training.preemption import Preemption
from xdpx.training.progress import Progress

EVENTS = [name for name in vars(TrainerCallback) if name.startswith("on_")]
QUIET = {"on_step_begin", "on_step_end", "on_prediction_step"}


class Recorder(TrainerCallback):
    """Writes down which event came at which step, and asks for things at given events."""

    def __init__(self, asks: dict[tuple[str, int], str] | None = None) -> None:
        self.heard: list[tuple[str, int]] = []
        self.asks = asks or {}
        self.logs: list[dict[str, Any]] = []
        self.best_before: list[float | None] = []


def _hearing(event: str) -> Callable[..., None]:
    def hear(self: Recorder, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append((event.removeprefix("on_"), state.global_step))
        flag = self.asks.get((event.removeprefix("on_"), state.global_step))
        if flag:
            setattr(control, flag, True)
        if event == "on_log":
            self.logs.append({**kwargs["logs"], "step": state.global_step})
        if event == "on_evaluate":
            self.best_before.append(state.best_metric)

    return hear


for event in EVENTS:
    setattr(Recorder, event, _hearing(event))

ARGS = {
    "num_train_epochs": 2, "logging_steps": 4, "eval_steps": 8, "save_steps": 8, "per_device_train_batch_size": 8,
    "metric_for_best_model": "closeness", "greater_is_better": True, "eval_strategy": "steps",
    "load_best_model_at_end": True,
}  # fmt: skip


class Desk:
    """A run with logging every 4 updates and evaluations every 8, of epochs of 8 updates."""

    def __init__(self, folder: Path, engine: Any, loss: Any, held_out: Any, groups: Any) -> None:
        self.folder, self.engine, self.loss, self.held_out, self.toy_groups = folder, engine, loss, held_out, groups
        self.checkpointer = Checkpointer(str(folder))
        self.ranks = ALONE
        self.preemption = Preemption()
        self.interval = 8

    def train(
        self, *user_callbacks: Any, until: int = 16, save: bool = True, saved: Any = None, **policy: Any
    ) -> tuple[Stop, Session]:
        accumulator = MetricAccumulator(self.engine.facts_to_host, windows=(LOG, EVALUATION))
        tables = [GrowingTable(str(self.folder / f"{name}.log.tsv")) for name in ("train", "valid")]
        logging = Logging(tables[0], accumulator, dict, interval=4)
        plan = EvaluationPlan(self.interval, "closeness")
        evaluating = Evaluating(
            plan,
            lambda: self.adapter.scored(self.held_out)(),
            self.loss,
            table=tables[1],
            accumulator=accumulator,
            metrics=dict,
            preemption=self.preemption,
        )
        kept: list[Any] = [logging, evaluating]
        saving = Saving(self.checkpointer, SavePolicy(**policy), callbacks=kept, accumulator=accumulator, metadata=dict)
        self.adapter = CallbackAdapter(
            user_callbacks, SimpleNamespace(**ARGS), logging=logging, evaluating=evaluating,
            saving=saving if save else None, epoch_length=lambda epoch: 8, ranks=self.ranks,
        )  # fmt: skip
        kept.append(self.adapter.middle)
        callbacks = [self.adapter.first, *kept, *([saving] if save else []), self.adapter.last]
        progress = Progress.from_dict(saved["progress"]) if saved else Progress()
        if saved:
            restore(saved, [*kept, saving])
        state = self.engine.restore(saved["engine"]) if saved else self.engine.start(0)
        session = Session(self.engine, state, progress, until, until)
        groups = self.adapter.groups(self.toy_groups((progress.epoch, progress.group)))
        return fit(session, groups, callbacks), session


@pytest.fixture
def desk(tmp_path: Path, engine: Any, loss: Any, held_out: Any, groups: Any) -> Desk:
    return Desk(tmp_path, engine, loss, held_out, groups)


def test_events_come_in_the_order_of_the_trainer(desk: Desk) -> None:
    recorder = Recorder()
    desk.train(recorder)
    told = [item for item in recorder.heard if f"on_{item[0]}" not in QUIET]
    one = [("log", 4), ("log", 8), ("log", 8), ("evaluate", 8), ("save", 8), ("epoch_end", 8)]
    two = [(name, step + 8) for name, step in one]
    begin = [("init_end", 0), ("train_begin", 0), ("epoch_begin", 0)]
    assert told == [*begin, *one, ("epoch_begin", 8), *two, ("train_end", 16)]


class StopsAt(TrainerCallback):
    """Asks for the end after an update, and notes what it hears."""

    def __init__(self, number: int) -> None:
        self.number, self.heard = number, list[int]()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(state.global_step)
        control.should_training_stop = state.global_step == self.number


def test_callbacks_of_all_processes_hear_and_those_of_the_first_are_obeyed(desk: Desk) -> None:
    said, first, second = list[Any](), StopsAt(3), StopsAt(2)
    desk.ranks = Ranks(0, 2, broadcast=lambda value: said.append(value) or value)
    assert desk.train(first, save=False)[0].reason == "asked to stop after step 3"
    desk.ranks = Ranks(1, 2, broadcast=lambda value: said.pop(0))
    assert desk.train(second, save=False)[0].reason == "asked to stop after step 3"
    assert first.heard == second.heard == [1, 2, 3]
    assert not desk.adapter.state.is_world_process_zero


def test_every_step_begins_and_ends_around_its_update(desk: Desk) -> None:
    recorder = Recorder()
    desk.train(recorder, until=3)
    steps = [item for item in recorder.heard if item[0] in {"step_begin", "step_end"}]
    assert steps == [("step_begin", 0), ("step_end", 1), ("step_begin", 1), ("step_end", 2), ("step_begin", 2),
                     ("step_end", 3)]  # fmt: skip
    assert recorder.heard.count(("prediction_step", 3)) == 2


def test_logs_and_metrics_have_the_names_of_the_trainer(desk: Desk) -> None:
    recorder = Recorder()
    desk.train(recorder)
    assert {"loss", "grad_norm", "learning_rate", "epoch", "steps_per_second"} <= recorder.logs[0].keys()
    assert recorder.logs[0]["epoch"] == 0.5
    assert {"eval_closeness", "eval_rows", "epoch", "step"} == recorder.logs[2].keys()
    assert desk.adapter.state.log_history == recorder.logs


def test_the_best_metric_is_noted_after_its_evaluation_was_told(desk: Desk) -> None:
    recorder = Recorder()
    _, session = desk.train(recorder)
    assert recorder.best_before[0] is None
    assert isinstance(recorder.best_before[1], float)
    assert desk.adapter.state.best_metric == session.progress.best_score


@pytest.mark.parametrize("at", ["step_end", "log", "evaluate", "save", "epoch_end"])
def test_a_callback_may_end_the_training_at_any_event(desk: Desk, at: str) -> None:
    stop, session = desk.train(Recorder({(at, 8): "should_training_stop"}), until=24)
    assert session.number == 8
    assert stop == Stop("asked to stop after step 8")


def test_what_is_asked_for_is_done_at_the_same_step(desk: Desk) -> None:
    flags = ("should_log", "should_evaluate", "should_save")
    recorder = Recorder({("step_end", step): flag for step, flag in zip((1, 2, 3), flags, strict=True)})
    desk.train(recorder, until=5)
    assert [item for item in recorder.heard if item[0] in {"log", "evaluate", "save"}][:4] == [
        ("log", 1), ("log", 2), ("evaluate", 2), ("save", 2),
    ]  # fmt: skip
    assert ("save", 3) in recorder.heard
    assert 3 in desk.checkpointer.weight_steps()
    rows = (desk.folder / "train.log.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[1:]] == ["1", "4"]


def test_what_is_asked_for_at_the_end_of_an_epoch_is_done_before_the_next(desk: Desk) -> None:
    recorder = Recorder({("epoch_end", 8): "should_save", ("epoch_begin", 8): "should_log"})
    desk.train(recorder, until=9, above_score=1e9)
    heard = [item for item in recorder.heard if f"on_{item[0]}" not in QUIET]
    assert heard[heard.index(("epoch_end", 8)) :][:3] == [("epoch_end", 8), ("save", 8), ("epoch_begin", 8)]
    assert desk.checkpointer.weight_steps() == [8]


def test_a_checkpoint_that_was_asked_for_stays_beside_the_best(desk: Desk) -> None:
    desk.train(Recorder({("step_end", 3): "should_save"}), best_only=True, last_only=True, until=24)
    assert desk.checkpointer.weight_steps()[0] == 3


@pytest.mark.parametrize("at", ["step_end", "log"])
def test_the_rest_of_an_epoch_can_be_left_out_and_it_ends_then(desk: Desk, at: str) -> None:
    recorder = Recorder({("step_end", 3): "should_log", (at, 3): "should_epoch_stop"})
    _, session = desk.train(recorder, until=5)
    assert (session.progress.epoch, session.progress.group) == (2, 2)
    heard = [item for item in recorder.heard if item[0].startswith("epoch")]
    assert heard == [("epoch_begin", 0), ("epoch_end", 3), ("epoch_begin", 3), ("epoch_end", 5)]


def test_a_resumed_run_leaves_out_the_rest_of_an_epoch_that_the_uninterrupted_one_did(desk: Desk) -> None:
    recorder = Recorder({("step_begin", 2): "should_evaluate", ("step_end", 3): "should_epoch_stop"})
    desk.train(recorder, until=4, resumable=True)
    _, session = desk.train(Recorder(), until=5, saved=desk.checkpointer.load_state(3), resumable=True)
    assert (session.progress.epoch, session.progress.group) == (2, 2)


def test_events_that_an_engine_does_not_tell_of_are_named(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.train(Recorder(), until=1)
    assert "does not send on_substep_end, on_pre_optimizer_step, on_optimizer_step" in capsys.readouterr().err


def test_an_error_names_the_callback_and_the_event(desk: Desk) -> None:
    class Broken(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise RuntimeError("no such thing")

    with pytest.raises(RuntimeError, match="no such thing") as caught:
        desk.train(Broken())
    assert caught.value.__notes__ == ["From Broken.on_evaluate, a callback, at step 8."]


def test_a_resumed_run_remembers_what_callbacks_counted(desk: Desk) -> None:
    patient = EarlyStoppingCallback(early_stopping_patience=3, early_stopping_threshold=1e9)
    desk.train(patient, until=16, resumable=True)
    counted = patient.early_stopping_patience_counter
    assert counted == 1
    again = EarlyStoppingCallback(early_stopping_patience=3, early_stopping_threshold=1e9)
    saved = desk.checkpointer.load_state(16)
    stop, session = desk.train(again, until=64, saved=saved, resumable=True)
    assert (again.early_stopping_patience_counter, session.number) == (3, 32)
    assert stop.reason == "asked to stop after step 32"
    assert [entry["step"] for entry in desk.adapter.state.log_history][:3] == [4, 8, 8]


class Returning(TrainerCallback, ExportableState):
    """Returns what it is given, as its state and from an event."""

    def __init__(self, state: Any = None, answer: Any = None, need: int = 0) -> None:
        self.kept, self.answer = {} if state is None else state, answer

    def state(self) -> Any:
        return self.kept

    def on_step_end(self, *args: Any, **kwargs: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ([1], r"'Returning.state' returns \[1\]"),
        ({"args": {"patience": 1}}, ".*does not accept .*patience"),
        ({"count": 1}, ".*returns count beside args and attributes, which would be lost on resuming"),
        ({"attributes": {"seen": {1, 2}}}, ".*values that a checkpoint cannot store .*set"),
    ],
)
def test_a_state_that_could_not_be_restored_is_refused_before_training(desk: Desk, state: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"callbacks: {told}"):
        desk.train(Returning(state))


def test_numbers_of_numpy_are_kept_and_keys_that_are_not_texts_are_told(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.train(Returning({"attributes": {"count": np.int64(3), "seen": {7: 1}}}), until=1, save=False)
    assert desk.adapter.state_dict()["callbacks"]["Returning"]["attributes"] == {"count": 3, "seen": {"7": 1}}
    assert "Returning.state: has keys that are not strings (7)" in capsys.readouterr().err


def test_a_wrong_answer_and_a_method_without_kwargs_are_faults_of_the_config(desk: Desk) -> None:
    class Narrow(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any) -> None:  # type: ignore[override]
            pass

    for callback, told in ((Returning(answer=True), "returned True"), (Narrow(), "cannot be called.*Let it take")):
        with pytest.raises(ConfigError, match=f"callbacks: '{type(callback).__name__}.on_step_end' {told}"):
            desk.train(callback)


class Told(Recorder, ExportableState):
    """Has the run be told to stop in the evaluation after an update, and remembers the batches that were scored."""

    def __init__(self, desk: Desk, step: int, asks: dict[tuple[str, int], str]) -> None:
        super().__init__(asks)
        self.desk, self.step, self.batches = desk, step, 0

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.batches += 1
        if state.global_step == self.step:
            self.desk.preemption.received, self.step = "SIGTERM", 0

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"batches": self.batches}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        return SimpleNamespace(**state["attributes"])


@pytest.mark.parametrize(("step", "asks"), [
    (8, {}),
    (16, {}),
    (3, {("step_end", 3): "should_evaluate"}),
    (3, {("log", 3): "should_evaluate", ("step_end", 3): "should_log"}),
    (8, {("step_end", 8): "should_training_stop"}),
    (8, {("step_end", 8): "should_save", ("evaluate", 8): "should_training_stop"}),
    (8, {("epoch_end", 8): "should_evaluate"}),
    (8, {("epoch_end", 8): "should_evaluate", ("evaluate", 8): "should_training_stop"}),
    (5, {("epoch_end", 5): "should_evaluate", ("step_end", 5): "should_epoch_stop"}),
])  # fmt: skip
def test_an_evaluation_that_is_cut_short_is_followed_by_all_events_of_an_undisturbed_run(
    tmp_path: Path, engine: Any, loss: Any, held_out: Any, groups: Any, step: int, asks: dict[tuple[str, int], str]
) -> None:
    def train(name: str, at: int) -> tuple[Told, list[Any], Any]:
        desk = Desk(tmp_path / name, engine, loss, held_out, groups)
        desk.interval = 100 if "should_evaluate" in asks.values() else 8
        told = Told(desk, at, asks)
        stop, session = desk.train(told, resumable=True)
        if at:
            assert not stop.finished
            desk.preemption, heard = Preemption(), list(told.heard)
            saved = desk.checkpointer.load_state(session.number)
            again = Told(desk, 0, asks)
            stop, session = desk.train(again, resumable=True, saved=saved)
            again.heard[: again.heard.index(("train_begin", step)) + 1] = heard[: heard.index(("save", step))]
            told = again
        history = [{key: row[key] for key in row if "per_second" not in key} for row in desk.adapter.state.log_history]
        session.progress.train_seconds = 0.0
        return told, [stop, history], (session.state, session.progress)

    whole, cut = train("whole", 0), train("cut", step)
    assert cut[0].heard == whole[0].heard
    assert cut[0].batches == whole[0].batches
    assert cut[1:] == whole[1:]


def test_callbacks_may_be_added_to_a_run_that_began_without(desk: Desk) -> None:
    desk.train(until=8, resumable=True)
    saved = desk.checkpointer.load_state(8)
    del saved["callbacks"]["hooks"]
    recorder = Recorder()
    desk.train(recorder, until=9, saved=saved, resumable=True)
    assert ("step_end", 9) in recorder.heard


def test_asking_for_a_checkpoint_where_none_are_saved_is_said(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.train(Recorder({("step_end", 3): "should_save"}), save=False, until=4)
    assert "saving is off" in capsys.readouterr().err
