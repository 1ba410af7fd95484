"""The events of a training, and the callbacks that handle them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import nearest
from xdpx.logger import log
from xdpx.trainer.hooks.state import TrainerControl, TrainerState
from xdpx.utils.pulse import LONG, pulse

if TYPE_CHECKING:
    from xdpx.trainer.arguments import TrainingArguments as Arguments

Answer = TrainerControl | None
LOGGER = "transformers.trainer_callback"
"""Name of the logger for messages from here, with which users silence them."""

SILENT = frozenset({LOGGER, __name__})
"""Modules with a `TrainerCallback` whose methods do nothing, and need not be called."""


class TrainerCallback:
    """Handles events, and may request actions by setting `control`. Override the methods you need.

    Each event gets by keyword `model, processing_class, tokenizer` (the same), `optimizer, lr_scheduler,
    train_dataloader, eval_dataloader`. A returned `control` replaces the current one.

    Attributes:
        changes_model: whether it changes weights or layers, so that x-train refuses it with the JAX engine.
    """

    changes_model = False

    def on_init_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when the Trainer was built."""

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when training begins."""

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when training ended without an error."""

    def on_epoch_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when an epoch begins."""

    def on_epoch_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when an epoch ended."""

    def on_step_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when a step begins, before its first batch."""

    def on_pre_optimizer_step(
        self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Answer:
        """Called when the gradients are computed and clipped."""

    def on_optimizer_step(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called after the optimizer step, before the gradients are cleared."""

    def on_substep_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called after each batch that is not the last of its step."""

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called after a step, before logging, evaluating and saving."""

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called after an evaluation, with its `metrics`."""

    def on_predict(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called after a prediction, with its `metrics`."""

    def on_save(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when a checkpoint is complete."""

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called when `logs` are logged; it may add to them."""

    def on_prediction_step(
        self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Answer:
        """Called after each batch of an evaluation or prediction."""

    def on_push_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Answer:
        """Called before files are pushed to the Hub."""


def _fires(event: str, *, resets: str = "", serves: str = "", brings: str = "") -> Callable[..., TrainerControl]:
    """Return the method that resets flags of the control, and then calls all callbacks with `event`.

    Args:
        event: its name.
        resets: name of the control's method that resets flags.
        serves: the one flag to reset.
        brings: name of an additional argument, passed to callbacks by keyword.
    """

    def fire(
        self: CallbackHandler, args: Arguments, state: TrainerState, control: TrainerControl, *brought: Any, **more: Any
    ) -> TrainerControl:
        if resets:
            getattr(control, resets)()
        if serves:
            setattr(control, serves, False)
        if brought:
            more[brings] = brought[0]
        return self.call_event(event, args, state, control, **more)

    fire.__name__, fire.__doc__ = event, f"Call {event} of every callback, and return the control after them."
    return fire


EVENTS = frozenset(name for name in vars(TrainerCallback) if name.startswith("on_"))


class CallbackHandler:
    """The callbacks of a Trainer, called in the order of the list `callbacks`, which users may change.

    Only callbacks that override an event are called for it, so that others cost nothing.

    Args:
        callbacks: classes or objects, in the list `callbacks`.
        model, processing_class, optimizer, lr_scheduler: passed to callbacks.
        unlisted: objects that every training has: called after the others, and not in `callbacks`.
    """

    def __init__(
        self,
        callbacks: Iterable[Any],
        model: Any,
        processing_class: Any,
        optimizer: Any,
        lr_scheduler: Any,
        *,
        unlisted: Iterable[Any] = (),
    ) -> None:
        self.model, self.processing_class = model, processing_class
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler
        self.train_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.callbacks: list[Any] = []
        self._unlisted = list(unlisted)
        self._known: list[Any] = []
        self._by_event: dict[str, list[tuple[Any, Callable[..., Any]]]] = {}
        for callback in callbacks:
            self.add_callback(callback)
        if "DefaultFlowCallback" not in {base.__name__ for each in self.callbacks for base in type(each).__mro__}:
            self._miss_flow()

    def _miss_flow(self) -> None:
        log.warning(
            "The Trainer will not work properly if you don't have a `DefaultFlowCallback` in its callbacks: nothing "
            "decides when to log, evaluate, save and end. You should add one before training with "
            f"`trainer.add_callback(DefaultFlowCallback)`. The current list of callbacks is\n{self.callback_list}",
            under=LOGGER,
        )

    # ---- the list

    def add_callback(self, callback: object) -> None:
        """Append a callback, or an instance of a class of callbacks."""
        callback = callback() if isinstance(callback, type) else callback
        _refuse_deaf(callback)
        if any(type(present) is type(callback) for present in self.callbacks):
            log.warning(
                f"You are adding a {type(callback)} to the callbacks of this Trainer, but there is already one, so "
                f"that each event reaches both. The current list of callbacks is\n{self.callback_list}",
                under=LOGGER,
            )
        self.callbacks.append(callback)

    def pop_callback(self, callback: object) -> Any:
        """Remove a callback, or the first of a class, and return it; None if there is none."""
        for index, present in enumerate(self.callbacks):
            if _is_a(present, callback) if isinstance(callback, type) else present == callback:
                return self.callbacks.pop(index)
        return None

    def remove_callback(self, callback: object) -> None:
        """Remove a callback, or the first of a class. Raises ValueError for a callback that is not in the list."""
        if self.pop_callback(callback) is None and not isinstance(callback, type):
            raise ValueError(f"{callback!r} is not among the callbacks, which are\n{self.callback_list}")

    @property
    def callback_list(self) -> str:
        """The class names of the callbacks, one per line."""
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    # ---- the events

    on_init_end = _fires("on_init_end")
    on_train_begin = _fires("on_train_begin", resets="_new_training")
    on_train_end = _fires("on_train_end")
    on_epoch_begin = _fires("on_epoch_begin", resets="_new_epoch")
    on_epoch_end = _fires("on_epoch_end")
    on_step_begin = _fires("on_step_begin", resets="_new_step")
    on_pre_optimizer_step = _fires("on_pre_optimizer_step")
    on_optimizer_step = _fires("on_optimizer_step")
    on_substep_end = _fires("on_substep_end")
    on_step_end = _fires("on_step_end")
    on_evaluate = _fires("on_evaluate", serves="should_evaluate", brings="metrics")
    on_predict = _fires("on_predict", brings="metrics")
    on_save = _fires("on_save", serves="should_save")
    on_log = _fires("on_log", serves="should_log", brings="logs")
    on_prediction_step = _fires("on_prediction_step")
    on_push_begin = _fires("on_push_begin")

    def call_event(
        self, event: str, args: Arguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> TrainerControl:
        """Call `event` of every callback that has it, and return the control after them."""
        methods = self._methods_of(event)
        if not methods:
            return control
        everything = {
            "model": self.model, "processing_class": self.processing_class, "tokenizer": self.processing_class,
            "optimizer": self.optimizer, "lr_scheduler": self.lr_scheduler,
            "train_dataloader": self.train_dataloader, "eval_dataloader": self.eval_dataloader, **more,
        }  # fmt: skip
        before = pulse.now
        try:
            for callback, method in methods:
                pulse.enter(type(callback).__name__, LONG)  # no time limit for callbacks
                try:
                    answer = method(args, state, control, **everything)
                except Exception as error:
                    if isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
                        problem = f"cannot be called: {error}"
                        raise self._misuse(callback, event, problem, "Let it take **kwargs.") from None
                    error.add_note(f"From {type(callback).__name__}.{event}, a callback, at step {state.global_step}.")
                    raise
                if answer is not None:
                    control = self._checked(answer, callback, event)
        finally:
            pulse.enter(*before)
        return control

    def _checked(self, answer: Any, callback: object, event: str) -> TrainerControl:
        """Return the control that a callback returned. Raises the error of `_misuse` for anything else."""
        if not hasattr(answer, "should_training_stop"):
            problem = f"returned {answer!r:.100}, which is not a TrainerControl"
            raise self._misuse(callback, event, problem, "Return the control, or None.")
        return answer  # type: ignore[no-any-return]  # it may be the original's class

    def _misuse(self, callback: object, event: str, problem: str, remedy: str) -> Exception:
        """Return the error for a method of a callback that cannot be called, or returns something else."""
        return TypeError(f"{type(callback).__name__}.{event} {problem}. {remedy}")

    def _methods_of(self, event: str) -> list[tuple[Any, Callable[..., Any]]]:
        now, known = self.callbacks, self._known
        if event == "on_train_begin" or len(now) != len(known) or not all(map(is_, now, known)):
            self._known, self._by_event = list(now), {}
        if event not in self._by_event:
            methods: list[tuple[Any, Any]] = [
                (callback, getattr(callback, event, None)) for callback in [*now, *self._unlisted]
            ]
            self._by_event[event] = [(callback, method) for callback, method in methods if _says_something(method)]
        return self._by_event[event]


def _refuse_deaf(callback: object) -> None:
    """Raise TypeError for what hears no event; warn of methods that are named nearly like one."""
    kind = type(callback)
    if not any(callable(getattr(callback, name, None)) for name in [*EVENTS, *_listed(callback)]):
        raise TypeError(
            f"callbacks: {callback!r:.100} ({kind.__name__}) has no method for any event, such as on_step_end. Give "
            "objects or classes that derive from TrainerCallback."
        )
    for name in set(_listed(kind)) - EVENTS:
        guess = nearest(name, EVENTS)
        if guess is not None:
            log.warning(
                f"{kind.__name__}.{name}: the Trainer never calls it, as there is no event of this name. Did you mean "
                f"{guess}?",
                once=True,
            )


def _listed(callback: object) -> list[str]:
    """Return the names that could be those of events, also of a user's own, which `call_event` may call."""
    return [name for name in dir(callback) if name.startswith("on_")]


def _says_something(method: Any) -> bool:
    """Return whether a method is not the empty one of a `TrainerCallback`, ours or the original's."""
    silent = getattr(method, "__module__", "") in SILENT and str(method.__qualname__).startswith("TrainerCallback.")
    return callable(method) and not silent


def _is_a(callback: object, kind: type) -> bool:
    """Return whether a callback is of a class; a class of the original matches ours of the same name."""
    if not kind.__module__.startswith("transformers."):
        return isinstance(callback, kind)
    return any(base.__name__ == kind.__name__ for base in type(callback).__mro__)
