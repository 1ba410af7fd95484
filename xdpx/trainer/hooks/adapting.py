"""Run callbacks written for the Trainer in trainings of x-train and x-exp, and act on their control."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Protocol

from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.config.faults import refusal
from xdpx.datasets.plan import Position
from xdpx.engines.base import Batch
from xdpx.logger import log
from xdpx.reports.results import plain_numbers
from xdpx.reports.run_tables import COLUMNS, evaluated
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.listed import KEY
from xdpx.trainer.hooks.state import (
    RIGHT_STATE,
    ExportableState,
    TrainerControl,
    TrainerState,
    UnusableState,
    is_exportable,
    read_state,
    restore_states,
    states_of,
    trouble_of,
)
from xdpx.training.callbacks.logging import Logging
from xdpx.training.callbacks.saving import EPOCH_END, OF_TRAINER
from xdpx.training.loop import Callback, Session, Step, Stop

INSIDE = ("on_substep_end", "on_pre_optimizer_step", "on_optimizer_step")
"""Events inside an update, which the engine must fire."""


class Evaluates(Protocol):
    """Evaluates on held-out data, when due or requested. `metrics`: of the last evaluation, empty before."""

    metrics: dict[str, float]

    def evaluate(self, session: Session) -> None:
        """Evaluate now."""
        ...


class Saves(Protocol):
    """Writes checkpoints, when due or requested. `saved_step`: step of the last one written."""

    saved_step: int

    def ask(self) -> None:
        """Request a checkpoint of the current step, even if none is due."""
        ...

    def save(self, session: Session) -> None:
        """Save the current step, if a checkpoint is due or requested."""
        ...


class Handler(CallbackHandler):
    """Calls the callbacks. The training itself decides when to log, evaluate, save and stop, unless a callback asks."""

    def _miss_flow(self) -> None:
        pass

    def _misuse(self, callback: object, event: str, problem: str, remedy: str) -> Exception:
        return refusal(KEY, f"'{type(callback).__name__}.{event}' {problem}.", remedy)

    def waiting_in_vain(self, told: Collection[str]) -> list[str]:
        """Return the events inside an update that a callback handles, but that the engine does not fire."""
        return [event for event in INSIDE if event not in told and self._methods_of(event)]


class CallbackAdapter:
    """Fires the events of the Trainer's callbacks in a training, by three callbacks of that training.

    `first` is before logging: a step ended. `middle` is after evaluation: it fires the events of logging and
    evaluation, and does what callbacks request in addition. `last` is after saving: a checkpoint was saved, an epoch
    ended. So events come in the order of the Trainer, and a request is served at the same step.

    Args:
        callbacks: written for the Trainer, and trackers.
        args: their arguments.
        logging, evaluating, saving: the parts that do the work; `saving` is None if nothing is to be saved.
        epoch_length: returns the number of updates of an epoch (1-based).
        processing_class: passed to the callbacks.
        ranks: the processes that train together. Callbacks run on all, and the requests on the first rank count.

    Attributes:
        state, control: as the callbacks see them.
        left: the epoch whose rest is to be skipped; 0 for none.
    """

    def __init__(
        self,
        callbacks: Sequence[Any],
        args: Any,
        *,
        logging: Logging,
        evaluating: Evaluates,
        saving: Saves | None,
        epoch_length: Callable[[int], int],
        processing_class: Any = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.handler = Handler(callbacks, None, processing_class, None, None)
        self.args, self.control = args, TrainerControl()
        self.state = self._at_home(TrainerState(), ranks)
        self._ranks = ranks
        self.first: Callback = _First(self)
        self.middle: Callback = _Middle(self)
        self.last: Callback = _Last(self)
        self._logging, self._evaluating, self._saving = logging, evaluating, saving
        self._epoch_length = epoch_length
        self._epoch: int | None = None  # 1-based; None between epochs
        self._length = 1  # of this epoch, in updates
        self.left = 0
        self._told = {"log": 0, "evaluation": 0, "save": 0}  # the step at which each was fired last
        self._midway: Mapping[str, Any] = {}  # of a checkpoint: what matters if its step was cut short by a signal
        self._made = self._kept()  # the initial states of the callbacks, to find later which arguments were changed

    # ---- around the data

    def groups(self, groups: Generator[tuple[Position, Any]]) -> Generator[tuple[Position, Any]]:
        """Yield the same groups, with the events at the start of epochs and steps; skip the rest of ended epochs."""
        with closing(groups):
            for place, group in groups:
                if place.epoch == self.left:
                    continue
                if self._epoch != place.epoch:
                    self._epoch, self._length = place.epoch, max(1, self._epoch_length(place.epoch))
                    self.fire("on_epoch_begin")
                self.fire("on_step_begin")
                yield place, group

    def scored(self, batches: Callable[[], Iterable[Batch]]) -> Callable[[], Iterable[Batch]]:
        """Return a function that yields the same batches, and fires on_prediction_step after each.

        If an evaluation is cut short, the states of callbacks are as before it: they will hear of its batches again.
        """

        def walk() -> Generator[Batch]:
            before = self._kept()
            try:
                for batch in batches():
                    yield batch
                    self.fire("on_prediction_step")
            except GeneratorExit:
                restore_states(self.handler.callbacks, before)
                raise

        return walk

    # ---- events

    def fire(self, event: str, *brought: Any) -> None:
        """Fire an event of every callback."""
        self.control = getattr(self.handler, event)(self.args, self.state, self.control, *brought)

    def _agree(self) -> None:
        """Copy the requests on the first process to all."""
        if self._ranks.size > 1:
            self.control = TrainerControl(**self._ranks.broadcast(asdict(self.control)))

    def begin(self, session: Session) -> None:
        """Fire the events of the beginning of a training, or of a resumed one."""
        state, args, engine = self.state, self.args, session.engine
        self.handler.model, self.handler.optimizer = engine.model_and_optimizer(session.state)
        engine.tell = self.fire
        unheard = self.handler.waiting_in_vain(engine.events)
        if unheard:
            log.warning(f"this engine does not send {', '.join(unheard)}, which callbacks listen for.")
        state.global_step, state.max_steps = session.number, session.total
        state.num_train_epochs = args.num_train_epochs or 0
        state.logging_steps, state.eval_steps, state.save_steps = args.logging_steps, args.eval_steps, args.save_steps
        state.train_batch_size = args.per_device_train_batch_size
        self._take_best(session)
        self._told = {"log": self._logging.logged_step, "evaluation": session.progress.last_eval_step, "save": 0}
        self.fire("on_init_end")
        self.fire("on_train_begin")
        if session.progress.cut_at and self._midway:  # the step goes on after events that were fired already
            self._told = dict(self._midway["told"])
            self.control = TrainerControl(**self._midway["control"])
            self._epoch = self._midway["epoch"]
            self._length = max(1, self._epoch_length(self._epoch or session.progress.epoch))

    def end_step(self, session: Session, step: Step) -> Stop | None:
        """Fire the end of a step."""
        state, place = self.state, step.place
        state.global_step = step.number
        state.epoch = place.epoch - 1 + min(1.0, place.group / self._length)
        self.fire("on_step_end")
        self._agree()
        return self._stop(session)

    def serve(self, session: Session) -> Stop | None:
        """Fire events for logs and scores of this step; log, evaluate and request saving if a callback asks for it."""
        number = session.number
        if self.control.should_log and self._logging.logged_step != number:
            self._logging.write_row(session)
        if self._told["log"] < number == self._logging.logged_step:
            self._told["log"] = number
            self.state.num_input_tokens_seen = session.progress.tokens
            self._log(self._logged())
            self._agree()
        if self.control.should_evaluate and not session.progress.just_evaluated:
            self._evaluating.evaluate(session)
        if session.progress.just_evaluated and self._told["evaluation"] < number:
            self._told["evaluation"] = number
            self._tell_scores(session)
            self._agree()
        if self.control.should_save and self._saving is not None:
            self._saving.ask()
        elif self.control.should_save:
            log.warning("a callback requested a checkpoint, but saving is off, so none is written.", once=True)
        return self._stop(session)

    def end_saving(self, session: Session) -> Stop | None:
        """Fire on_save if a checkpoint was saved at this step."""
        if self._saving is not None and self._told["save"] < session.number == self._saving.saved_step:
            self._told["save"] = session.number
            self.fire("on_save")
            self._agree()
        self.control.should_save = False
        return self._stop(session)

    def end_epoch(self, session: Session) -> Stop | None:
        """Fire the end of an epoch, if one is open, and do what a callback requests then."""
        if self._epoch is None:
            return None
        self._epoch, self.left = None, self._now_left
        self.fire("on_epoch_end")
        self._agree()
        return self.leave_epoch(session)

    def leave_epoch(self, session: Session) -> Stop | None:
        """Do what a callback requested at the end of an epoch; a signal that cuts this short lets it begin again."""
        self.serve(session)
        if self._saving is not None:
            self._saving.save(session)
        return self.end_saving(session)

    def is_over(self, place: Position) -> bool:
        """Return whether an epoch ends at this position: it is complete, or a callback has ended it."""
        return place.group >= self._length or self.control.should_epoch_stop

    @property
    def _now_left(self) -> int:
        return self._epoch if self._epoch is not None and self.control.should_epoch_stop else self.left

    def _tell_scores(self, session: Session) -> None:
        metrics = {evaluated(name): value for name, value in self._evaluating.metrics.items()}
        metrics["epoch"] = self.state.epoch
        self._log(metrics)
        self.fire("on_evaluate", metrics)
        self._take_best(session)  # only now, since callbacks compare with the previous best

    def _take_best(self, session: Session) -> None:
        progress = session.progress
        self.state.best_metric = progress.best_score
        self.state.best_global_step = progress.best_step or None

    def _logged(self) -> dict[str, Any]:
        names = {column: name for name, column in COLUMNS.items()}
        row = {names.get(name, name): value for name, value in self._logging.row.items() if name != "step"}
        return {**row, **self._logging.texts, "epoch": self.state.epoch}

    def _log(self, logs: dict[str, Any]) -> None:
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.fire("on_log", logs)

    def _stop(self, session: Session) -> Stop | None:
        return Stop(f"asked to stop after step {session.number}") if self.control.should_training_stop else None

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the training as the callbacks see it, and the states of ExportableState callbacks."""
        state = json.loads(self.state.to_json())
        midway = {"told": dict(self._told), "control": asdict(self.control), "epoch": self._epoch}
        return {
            "state": state, "callbacks": self._kept(), "made": self._made, "left": self._now_left, "midway": midway,
        }  # fmt: skip

    @staticmethod
    def _at_home(state: TrainerState, ranks: Ranks) -> TrainerState:
        state.is_world_process_zero, state.is_local_process_zero = ranks.rank == 0, ranks.local_rank == 0
        return state

    def _kept(self) -> dict[str, Any]:
        return states_of((each for each in self.handler.callbacks if is_exportable(each)), read=_plain_state)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.state = self._at_home(TrainerState(**saved["state"]), self._ranks)
        self.left = saved.get("left", 0)
        self._midway = saved.get("midway", {})
        made = saved.get("made", {})
        states = {
            name: with_new(state, made.get(name), self._made.get(name)) for name, state in saved["callbacks"].items()
        }
        try:
            restore_states(self.handler.callbacks, states)
        except UnusableState as error:
            raise refusal(KEY, str(error)) from error


def _plain_state(callback: ExportableState) -> Any:
    """Return the state of a callback as JSON gives it back. Raises ConfigError if it could not be restored."""
    kind = type(callback)
    try:
        state = read_state(callback)
        if problem := trouble_of(kind, state):
            raise refusal(KEY, f"'{kind.__name__}.state' {problem}.", RIGHT_STATE)
        return json.loads(json.dumps(plain_numbers(state)))
    except NotImplementedError as error:
        raise refusal(KEY, str(error)) from error
    except TypeError as error:
        problem = f"'{kind.__name__}.state' returns values that a checkpoint cannot store ({error})."
        raise refusal(KEY, problem, "Return numbers, strings, and lists and dicts of them.") from error


def with_new(state: Any, made: Any, now: Any) -> Any:
    """Return the state of a callback, or of all of one class, with the arguments replaced that the config has changed.

    Args:
        state: the saved state.
        made: its initial state in the run that saved it.
        now: its initial state in this run.
    """
    if isinstance(state, list):
        several = [each if isinstance(each, list) else [each] * len(state) for each in (made, now)]
        return [with_new(*each) for each in zip(state, *several, strict=False)]
    if not isinstance(made, dict) or not isinstance(now, dict):
        return state
    before, args = made.get("args", {}), now.get("args", {})
    changed = {name: value for name, value in args.items() if before.get(name) != value}
    return {**state, "args": {**state.get("args", {}), **changed}}


class _First(Callback):
    """First of all callbacks of the training."""

    def __init__(self, adapter: CallbackAdapter) -> None:
        self._adapter = adapter

    def on_start(self, session: Session) -> None:
        self._adapter.begin(session)

    def on_step(self, session: Session, step: Step) -> Stop | None:
        return self._adapter.end_step(session, step)


class _Middle(Callback):
    """After evaluation; its state in checkpoints is that of the callbacks."""

    name = OF_TRAINER

    def __init__(self, adapter: CallbackAdapter) -> None:
        self._adapter = adapter

    def on_step(self, session: Session, step: Step) -> Stop | None:
        return self._adapter.serve(session)

    def on_end(self, session: Session, stop: Stop) -> None:
        if stop.finished:
            self._adapter.serve(session)

    def state_dict(self) -> dict[str, Any]:
        return self._adapter.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._adapter.load_state_dict(saved)


class _Last(Callback):
    """After saving. It has a name because a signal may cut short what it does at the end of an epoch."""

    name = EPOCH_END

    def __init__(self, adapter: CallbackAdapter) -> None:
        self._adapter = adapter

    def on_step(self, session: Session, step: Step) -> Stop | None:
        if step.cut_at == self.name:
            return self._adapter.leave_epoch(session)
        stop = self._adapter.end_saving(session)
        return (self._adapter.end_epoch(session) if self._adapter.is_over(step.place) else None) or stop

    def on_end(self, session: Session, stop: Stop) -> None:
        self._adapter.end_saving(session)
        if stop.finished:
            self._adapter.end_epoch(session)
            self._adapter.fire("on_train_end")
