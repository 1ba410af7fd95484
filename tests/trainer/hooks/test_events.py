from __future__ import annotations

import inspect
from typing import Any

import pytest
import transformers
from transformers.trainer_callback import CallbackHandler as TheirHandler

from xdpx.trainer.hooks.builtin import DefaultFlowCallback, PrinterCallback
from xdpx.trainer.hooks.events import CallbackHandler, TrainerCallback
from xdpx.trainer.hooks.state import TrainerControl

EVENTS = [name for name in dir(transformers.TrainerCallback) if name.startswith("on_")]


class Listener(TrainerCallback):
    """Writes down what it hears of two events."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(("on_step_end", kwargs))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.heard.append(("on_log", logs))


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_of_the_original_is_there_under_its_name_and_with_its_arguments(event):
    ours, theirs = (
        list(inspect.signature(getattr(kind, event)).parameters) for kind in (TrainerCallback, TheirHandler)
    )
    assert ours[:4] == ["self", "args", "state", "control"] == theirs[:4]
    assert getattr(TrainerCallback(), event)(None, None, None, model=None) is None
    assert getattr(CallbackHandler, event).__name__ == event
    assert event in getattr(CallbackHandler, event).__doc__


def test_there_are_no_other_events_than_those_of_the_original():
    assert sorted(name for name in dir(TrainerCallback) if name.startswith("on_")) == EVENTS


def test_a_listener_gets_everything_by_keyword_and_the_tokenizer_under_both_names(stage):
    listener = Listener()
    stage.handler.add_callback(listener)
    stage.fire("on_step_end")
    assert listener.heard == [(
        "on_step_end",
        {
            "model": "model", "processing_class": "tokenizer", "tokenizer": "tokenizer", "optimizer": "optimizer",
            "lr_scheduler": "scheduler", "train_dataloader": "training", "eval_dataloader": "evaluation",
        },
    )]  # fmt: skip


def test_what_is_logged_is_the_very_dict_so_that_a_callback_can_add_to_it(stage):
    class Adding(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            logs["extra"] = 1

    listener, logs = Listener(), {"loss": 2.0}
    stage.handler.callbacks += [Adding(), listener]
    stage.fire("on_log", logs)
    assert listener.heard == [("on_log", {"loss": 2.0, "extra": 1})]
    assert listener.heard[0][1] is logs


@pytest.mark.parametrize(
    ("event", "reset"),
    [
        ("on_train_begin", {"should_training_stop"}),
        ("on_epoch_begin", {"should_epoch_stop"}),
        ("on_step_begin", {"should_log", "should_evaluate", "should_save"}),
        ("on_log", {"should_log"}),
        ("on_evaluate", {"should_evaluate"}),
        ("on_save", {"should_save"}),
        ("on_predict", set()),
        ("on_substep_end", set()),
    ],
)
def test_an_event_sets_back_the_flags_that_it_serves_and_no_others(stage, event, reset):
    stage.control = TrainerControl(True, True, True, True, True)
    stage.fire(event, *([{}] if event in {"on_log", "on_evaluate", "on_predict"} else []))
    assert {name for name, value in vars(stage.control).items() if not value} == reset


def test_a_control_that_is_returned_takes_the_place_of_the_present_one(stage):
    other = TrainerControl(should_save=True)

    class Replacing(TrainerCallback):
        def on_epoch_end(self, args, state, control, **kwargs):
            return other

    stage.handler.callbacks = [Replacing(), Listener()]
    assert stage.fire("on_epoch_end") is other


def test_anything_else_that_is_returned_is_refused_by_name(stage):
    class Confused(TrainerCallback):
        def on_epoch_end(self, args, state, control, **kwargs):
            return True

    stage.handler.add_callback(Confused)
    with pytest.raises(TypeError, match=r"Confused\.on_epoch_end returned True, which is not a TrainerControl"):
        stage.fire("on_epoch_end")


def test_a_method_that_cannot_take_what_every_event_brings_is_told_what_to_take(stage):
    class Narrow(TrainerCallback):
        def on_epoch_end(self, args, state, control):
            pass

    stage.handler.add_callback(Narrow)
    with pytest.raises(TypeError, match=r"Narrow\.on_epoch_end cannot be called: .* Let it take \*\*kwargs"):
        stage.fire("on_epoch_end")


def test_an_exception_keeps_its_type_and_names_the_callback_the_event_and_the_step(stage):
    class Failing(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise KeyError("loss")

    stage.handler.add_callback(Failing())
    with pytest.raises(KeyError) as failure:
        stage.fire("on_step_end")
    assert failure.value.__notes__ == ["From Failing.on_step_end, a callback, at step 3."]


def test_only_callbacks_that_have_something_to_say_are_called(stage, monkeypatch):
    def never(*_: object, **__: object) -> None:
        raise LookupError("called for nothing")

    never.__module__, never.__qualname__ = TrainerCallback.__module__, "TrainerCallback.on_substep_end"
    monkeypatch.setattr(TrainerCallback, "on_substep_end", never)
    stage.handler.add_callback(Listener())
    stage.fire("on_substep_end")


def test_callbacks_of_the_original_are_heard_and_their_silence_costs_nothing(stage):
    class Theirs(transformers.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            control.should_epoch_stop = True

    stage.handler.add_callback(Theirs)
    assert stage.fire("on_save").should_epoch_stop
    assert stage.handler._methods_of("on_step_begin") == []


def test_an_object_with_a_single_event_is_a_callback(stage):
    class Plain:
        steps = 0

        def on_step_begin(self, args, state, control, **kwargs):
            self.steps += 1

    plain = Plain()
    stage.handler.add_callback(plain)
    for event in EVENTS:
        stage.fire(event, *([{}] if event in {"on_log", "on_evaluate", "on_predict"} else []))
    assert plain.steps == 1


def test_a_list_that_is_changed_by_hand_is_obeyed_even_when_the_objects_are_equal(stage):
    class Equal(Listener):
        def __eq__(self, other):
            return isinstance(other, Equal)

        __hash__ = None

    first, second = Equal(), Equal()
    stage.handler.callbacks.append(first)
    stage.fire("on_step_end")
    stage.handler.callbacks[-1] = second
    stage.fire("on_step_end")
    assert [len(first.heard), len(second.heard)] == [1, 1]


def test_a_method_that_an_object_was_given_before_the_training_is_called(stage):
    stage.fire("on_epoch_end")
    heard = []
    stage.handler.callbacks[0].on_epoch_end = lambda *_, **__: heard.append("epoch")
    stage.fire("on_train_begin")
    stage.fire("on_epoch_end")
    assert heard == ["epoch"]


def test_an_event_of_somebodys_own_is_called_where_it_is_known(stage):
    class Knowing(TrainerCallback):
        def on_generate(self, args, state, control, text, **kwargs):
            control.should_log = text == "hello"

    stage.handler.add_callback(Knowing())
    assert stage.handler.call_event("on_generate", stage.args, stage.state, stage.control, text="hello").should_log


# ---- the list


def test_a_class_is_added_as_a_new_object_and_taken_out_by_its_class(stage):
    stage.handler.add_callback(Listener)
    assert stage.handler.callback_list == "DefaultFlowCallback\nListener"
    assert isinstance(stage.handler.pop_callback(Listener), Listener)
    assert stage.handler.pop_callback(Listener) is None


def test_an_object_is_taken_out_itself(stage):
    first, second = Listener(), Listener()
    stage.handler.callbacks += [first, second]
    stage.handler.remove_callback(second)
    assert stage.handler.pop_callback(first) is first
    assert len(stage.handler.callbacks) == 1


def test_removing_a_class_that_is_not_there_is_fine_and_an_object_that_is_not_there_is_refused(stage):
    stage.handler.remove_callback(Listener)
    with pytest.raises(ValueError, match="is not among the callbacks, which are\nDefaultFlowCallback"):
        stage.handler.remove_callback(Listener())


@pytest.mark.parametrize("name", ["PrinterCallback", "DefaultFlowCallback"])
def test_a_class_of_the_original_takes_out_ours_of_that_name(stage, name):
    stage.handler.add_callback(PrinterCallback())
    assert type(stage.handler.pop_callback(getattr(transformers.trainer_callback, name))).__name__ == name


def test_a_class_of_the_users_own_takes_out_no_other_of_that_name(stage):
    stage.handler.add_callback(PrinterCallback())
    assert stage.handler.pop_callback(type("PrinterCallback", (TrainerCallback,), {})) is None


def test_a_second_one_of_a_class_is_added_and_said(stage, capsys):
    stage.handler.add_callback(DefaultFlowCallback())
    assert "DefaultFlowCallback'> to the callbacks of this Trainer, but there is already one" in capsys.readouterr().err
    assert len(stage.handler.callbacks) == 2


def test_a_list_without_the_default_flow_is_warned_about(capsys):
    CallbackHandler([transformers.DefaultFlowCallback()], None, None, None, None)
    assert capsys.readouterr().err == ""
    CallbackHandler([Listener()], None, None, None, None)
    assert "`trainer.add_callback(DefaultFlowCallback)`" in capsys.readouterr().err


@pytest.mark.parametrize("deaf", [print, "early_stopping", object()])
def test_what_hears_no_event_is_no_callback(deaf):
    with pytest.raises(TypeError, match="has no method for any event, such as on_step_end"):
        CallbackHandler([deaf], None, None, None, None)


def test_a_method_that_is_named_nearly_like_an_event_is_pointed_out(capsys):
    kind = type("Slip", (TrainerCallback,), {"on_step_ends": lambda self, *given, **more: None})
    CallbackHandler([DefaultFlowCallback, kind], None, None, None, None)
    assert "Slip.on_step_ends: the Trainer never calls it" in capsys.readouterr().err
