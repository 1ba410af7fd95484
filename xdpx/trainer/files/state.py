"""`trainer_state.json`: progress of a training with the Trainer, and the states of its callbacks.

It has exactly the fields of the Hugging Face Trainer's, so that each can read the other's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from typing import Any, Protocol, Self

from xdpx.logger import log
from xdpx.reports.results import listed
from xdpx.trainer.arguments import TrainingArguments
from xdpx.utils.commit import write_text
from xdpx.utils.io_utils import io
from xdpx.utils.paths import StrPath


class Searching(Protocol):
    """The attributes of a Trainer that a state reads: the trial of a search, its name, and the rank of this process."""

    hp_name: Callable[[Any], str] | None
    _trial: Any

    def is_local_process_zero(self) -> bool:
        """Return whether this is the first process of its machine."""
        ...

    def is_world_process_zero(self) -> bool:
        """Return whether this is the first process of all."""
        ...


STATE_PARTS = ("args", "attributes")
RIGHT_STATE = 'Return {"args": {...for __init__}, "attributes": {...set afterwards}}.'


class UnusableState(TypeError):
    """The state of a callback cannot be saved or restored."""


class ExportableState:
    """A callback with a state for checkpoints: override `state`; `from_state` constructs an equal object from it."""

    def state(self) -> dict[str, Any]:
        """Return `{"args": {...for __init__}, "attributes": {...set afterwards}}`, of values that JSON can hold."""
        example = '{"args": {"patience": self.patience}, "attributes": {"count": self.count}}'
        raise NotImplementedError(f"{type(self).__name__} has no `state`. Define it, e.g. to return {example}.")

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return an object with a saved state."""
        instance = cls(**state.get("args", {}))
        vars(instance).update(state.get("attributes", {}))
        return instance


@dataclass
class TrainerState:
    """Progress of a training. A step is one optimizer update, whatever the number of batches in it.

    `epoch` is fractional within an epoch. `log_history` holds every dict that was logged, with its step.
    `stateful_callbacks` holds `state()` by class name, and may be given as the callbacks themselves.
    """

    epoch: float = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, Any]] = None  # type: ignore[assignment]  # None means: none yet, as in the original
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, Any] | None = None
    stateful_callbacks: Any = None

    def __post_init__(self) -> None:
        self.log_history = self.log_history or []
        if not isinstance(self.stateful_callbacks, dict):
            self.stateful_callbacks = states_of(self.stateful_callbacks or [])

    def to_json(self) -> str:
        """Return the text of `trainer_state.json`."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = partial(listed, where="trainer_state.json")
        return json.dumps(content, indent=2, sort_keys=True, default=plain) + "\n"

    def save_to_json(self, json_path: StrPath) -> None:
        """Write `trainer_state.json` atomically."""
        write_text(json_path, self.to_json())

    @classmethod
    def load_from_json(cls, json_path: StrPath) -> Self:
        """Read `trainer_state.json`, of this package or of the original, of any version.

        Raises:
            ValueError: it is damaged.
        """
        try:
            with io.open(json_path) as file:
                found = dict(json.load(file))
        except (ValueError, TypeError) as error:
            advice = "Resume from another checkpoint; this one is incomplete."
            raise ValueError(f"{json_path}: contains no trainer state ({error}). {advice}") from error
        known = {field.name: found.pop(field.name) for field in fields(cls) if field.name in found}
        if found:
            log.warning(f"{json_path}: {', '.join(sorted(found))}: from another version, and not used.")
        return cls(**known)

    def compute_steps(self, args: TrainingArguments, max_steps: int) -> None:
        """Set `logging_steps`, `eval_steps` and `save_steps`; below 1 they are a share of `max_steps` (rounded up)."""
        for name in ("logging_steps", "eval_steps", "save_steps"):
            wanted = getattr(args, name)
            if wanted is not None:
                setattr(self, name, math.ceil(max_steps * wanted) if wanted < 1 else wanted)

    def init_training_references(self, trainer: Searching, max_steps: int, num_train_epochs: int, trial: Any) -> None:
        """Record what is known when a training begins; `trial` is that of a search (None: no search)."""
        if trainer.hp_name is not None and trainer._trial is not None:
            self.trial_name = trainer.hp_name(trainer._trial)
        self.trial_params = None if trial is None else dict(getattr(trial, "params", trial))
        self.max_steps, self.num_train_epochs = max_steps, num_train_epochs
        self.is_local_process_zero = trainer.is_local_process_zero()
        self.is_world_process_zero = trainer.is_world_process_zero()


def read_state(callback: ExportableState) -> Any:
    """Return the state of a callback; warn of keys of dicts that come back from JSON as texts."""
    state, kind = callback.state(), type(callback)
    if (keys := list(_other_keys(state))) and not _restores_itself(kind):
        log.warning(
            f"{kind.__name__}.state: has keys that are not strings ({', '.join(map(repr, keys[:3]))}), which a "
            "resumed run gets as strings. Return a list of pairs, or define from_state.",
            once=True,
        )
    return state


def _other_keys(value: Any) -> Iterator[Any]:
    """Yield the keys that are not texts, of all dicts in a value."""
    if isinstance(value, Mapping):
        yield from (key for key in value if not isinstance(key, str))
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for part in value:
        yield from _other_keys(part)


def states_of(callbacks: Iterable[Any], *, read: Callable[[ExportableState], Any] = read_state) -> dict[str, Any]:
    """Return the state of each by class name, a list if there are several of a class. Raises TypeError without it.

    Args:
        callbacks: whose states are wanted.
        read: returns the state of one.
    """
    found: dict[str, list[Any]] = {}
    for callback in callbacks:
        if not is_exportable(callback):
            advice = "Let it inherit from ExportableState and define `state`, or leave it out."
            raise TypeError(f"stateful_callbacks: {type(callback).__name__} has no state to save. {advice}")
        found.setdefault(type(callback).__name__, []).append(read(callback))
    return {name: states[0] if len(states) == 1 else states for name, states in found.items()}


def restore_states(callbacks: Iterable[Any], saved: Mapping[str, Any]) -> None:
    """Restore each callback (and the control) to its saved state, in place; warn of saved states without a callback.

    Raises:
        UnusableState: a state cannot be restored.
    """
    present: dict[str, list[Any]] = {}
    for callback in filter(is_exportable, callbacks):
        present.setdefault(type(callback).__name__, []).append(callback)
    for name, states in saved.items():
        several = states if isinstance(states, list) else [states]
        for callback, state in zip(present.get(name, []), several, strict=False):
            vars(callback).update(vars(_restored(type(callback), state)))
    if missing := sorted(set(saved) - set(present)):
        log.warning(
            f"Checkpoint included callbacks not included in current configuration. Ignoring. ({', '.join(missing)})",
            under="transformers.trainer",
        )


def _restored(kind: type[ExportableState], state: Any) -> ExportableState:
    """Return a callback of a class with a saved state."""
    if problem := trouble_of(kind, state):
        raise UnusableState(f"{kind.__name__}.state {problem}. {RIGHT_STATE}")
    try:
        return kind.from_state(state)
    except Exception as error:  # the class is a user's
        problem = f"cannot restore its state ({type(error).__name__}: {error})"
        raise UnusableState(f"{kind.__name__}.from_state {problem}. {RIGHT_STATE}") from error


def trouble_of(kind: type[ExportableState], state: Any) -> str:
    """Return why the `from_state` of `ExportableState` cannot restore a state, "" if it can, or is overridden."""
    if _restores_itself(kind):
        return ""
    parts = [state.get(part, {}) for part in STATE_PARTS] if isinstance(state, Mapping) else []
    if not parts or not all(isinstance(part, Mapping) for part in parts):
        return f"returns {state!r:.100}"
    if stray := sorted(map(str, set(state) - set(STATE_PARTS))):
        return f"returns {', '.join(stray)} beside {' and '.join(STATE_PARTS)}, which would be lost on resuming"
    try:
        signature(kind).bind(**parts[0])
    except TypeError as error:
        return f"returns args that {kind.__name__} does not accept ({error})"
    return ""


def _restores_itself(kind: type[ExportableState]) -> bool:
    """Return whether a class has a `from_state` of its own; that of the original's ExportableState is ours."""
    return kind.from_state.__qualname__ != "ExportableState.from_state"


def is_exportable(callback: object) -> bool:
    """Return whether a checkpoint can keep this callback's state (the original's own callbacks as well as ours)."""
    return callable(getattr(callback, "state", None)) and callable(getattr(callback, "from_state", None))
