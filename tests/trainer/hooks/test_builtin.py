from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import transformers
from transformers import trainer_callback as theirs

from tests.trainer.hooks.conftest import arguments
from xdpx.trainer.hooks import builtin as ours
from xdpx.trainer.hooks.events import TrainerCallback
from xdpx.trainer.hooks.state import TrainerControl, TrainerState

STRATEGIES = ("no", "steps", "epoch")


def _flags(kind: Any, event: str, args: Any, state: TrainerState) -> TrainerControl:
    control = TrainerControl()
    return getattr(kind(), event)(args, state, control)


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_the_default_flow_asks_for_the_same_as_the_original_in_every_case(event):
    cases = itertools.product(
        STRATEGIES, STRATEGIES, (*STRATEGIES, "best"), (False, True), (0, 5), (1, 3, 6, 7), (6, 7), (2, 3), (0, 2)
    )
    for log, evaluate, save, first, delay, step, last, every, saving in cases:
        args = arguments(
            logging_strategy=log, eval_strategy=evaluate, save_strategy=save, logging_first_step=first, eval_delay=delay
        )
        state = TrainerState(
            epoch=step / 2, global_step=step, max_steps=last, logging_steps=every, eval_steps=every, save_steps=saving
        )
        one, other = (_flags(kind.DefaultFlowCallback, event, args, state) for kind in (ours, theirs))
        assert one == other, (args, state)


def test_the_default_flow_reads_the_enums_of_the_original():
    args = arguments(logging_strategy=transformers.trainer_utils.IntervalStrategy.STEPS, save_strategy="no")
    control = _flags(ours.DefaultFlowCallback, "on_step_end", args, TrainerState(global_step=500, max_steps=9999))
    assert control == TrainerControl(should_log=True)


# ---- early stopping


@pytest.mark.parametrize(
    ("greater", "threshold", "patience"), [*itertools.product((True, False), (0.0, 0.3, None), (1, 3))]
)
def test_early_stopping_counts_as_the_original_does(greater, threshold, patience):
    args = arguments(metric_for_best_model="eval_score", greater_is_better=greater, eval_strategy="steps")
    one, other = (kind.EarlyStoppingCallback(patience, threshold or 0.0) for kind in (ours, theirs))
    one.early_stopping_threshold = threshold
    scores = random.Random(7)
    best = None
    for _ in range(40):
        score = scores.choice([scores.random(), 0.5, float("nan"), float("inf")])
        state = TrainerState(best_metric=best)
        controls = [TrainerControl(), TrainerControl()]
        for callback, control in zip((one, other), controls, strict=True):
            callback.on_evaluate(args, state, control, {"eval_score": score})
        assert one.early_stopping_patience_counter == other.early_stopping_patience_counter
        assert controls[0] == controls[1]
        if best is None or (score > best if greater else score < best):
            best = score


def test_early_stopping_asks_to_stop_when_its_patience_ends():
    callback, control = ours.EarlyStoppingCallback(early_stopping_patience=2), TrainerControl()
    for loss in (1.0, 1.0):
        assert not control.should_training_stop
        callback.on_evaluate(arguments(), TrainerState(best_metric=1.0), control, metrics={"eval_loss": loss})
    assert control.should_training_stop


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metric_for_best_model": None}, "set metric_for_best_model"),
        ({"eval_strategy": "no"}, "set eval_strategy to 'steps' or 'epoch'; it is 'no'"),
    ],
)
@pytest.mark.parametrize("kind", [ValueError, AssertionError])
def test_early_stopping_with_nothing_to_compare_is_refused_when_training_begins(changes, text, kind):
    args = arguments(**{"eval_strategy": "steps", **changes})
    with pytest.raises(kind, match=text):
        ours.EarlyStoppingCallback().on_train_begin(args, TrainerState(), TrainerControl())


def test_early_stopping_says_that_the_best_model_will_not_be_loaded(capsys):
    args = arguments(eval_strategy="steps", load_best_model_at_end=False)
    ours.EarlyStoppingCallback().on_train_begin(args, TrainerState(), TrainerControl())
    assert "Set load_best_model_at_end=True to end with the best." in capsys.readouterr().err


def test_early_stopping_does_not_count_an_evaluation_without_its_metric_and_names_what_there_is(capsys):
    callback, metrics = ours.EarlyStoppingCallback(), {"eval_accuracy": 1.0, "eval_f1": 0.5}
    callback.on_evaluate(
        arguments(metric_for_best_model="los"), TrainerState(best_metric=1.0), TrainerControl(), metrics
    )
    assert callback.early_stopping_patience_counter == 0
    said = capsys.readouterr().err
    assert "did not find eval_los so early stopping is disabled for this evaluation, which does not count." in said
    assert "There is eval_accuracy, eval_f1." in said


def test_early_stopping_is_kept_in_a_checkpoint_as_the_original_keeps_it():
    one, other = ours.EarlyStoppingCallback(3, 0.5), theirs.EarlyStoppingCallback(3, 0.5)
    one.early_stopping_patience_counter = other.early_stopping_patience_counter = 2
    assert one.state() == other.state()
    assert vars(ours.EarlyStoppingCallback.from_state(one.state())) == vars(one)


# ---- what is shown


@pytest.mark.parametrize(
    "name", ["ProgressCallback", "PrinterCallback", "EarlyStoppingCallback", "DefaultFlowCallback"]
)
def test_the_built_in_ones_are_trainer_callbacks(name):
    assert isinstance(getattr(ours, name)(), TrainerCallback)


def test_progress_has_a_bar_from_the_first_step_to_the_last(stage, capsys):
    stage.handler.add_callback(ours.ProgressCallback(max_str_len=5))
    stage.state = TrainerState(max_steps=4)
    stage.fire("on_train_begin")
    for stage.state.global_step in (1, 2, 3, 4):
        stage.fire("on_step_end")
    stage.fire("on_log", {"loss": 0.123456, "note": "long text", "total_flos": 3})
    stage.fire("on_train_end")
    said = capsys.readouterr()
    assert "4/4" in said.err
    assert said.out.strip() == "{'loss': '0.1235', 'note': '[a text of 9 characters; `max_str_len` is 5]'}"


def test_printing_is_what_the_original_prints_but_leaves_the_dict_whole(capsys):
    logs = {"loss": 0.123456, "step": 3, "name": "x" * 200, "total_flos": 5.0}
    ours.PrinterCallback().on_log(arguments(), TrainerState(), TrainerControl(), logs=logs)
    printed = capsys.readouterr().out
    theirs.PrinterCallback().on_log(arguments(), TrainerState(), TrainerControl(), logs=dict(logs))
    assert printed == capsys.readouterr().out
    assert logs["total_flos"] == 5.0
