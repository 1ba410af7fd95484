"""The interface to hardware: what each device backend implements. State goes in, state comes out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, NamedTuple, Protocol

from xdpx.config.faults import refusal
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.logger import log

Batch = Mapping[str, Any]
"""What a processor collates: numpy arrays, nested one level under `net_input`. Opaque to the loop."""

State = Any
"""Opaque to all code but the engine that made it."""

Facts = Mapping[str, Any]
"""Scalars that may still be on the device: nothing waits for them until their values are needed."""

Predictions = Mapping[str, Any]
"""Of one batch: tensors with one row per sample, concatenated over batches, and scalars, summed over batches."""


Split = Callable[[Batch, int], Sequence[Batch]]
"""Splits a batch, in order, into at most the given number of smaller batches: `Processor.split`."""


class OutOfMemory(OSError):
    """The device does not have enough memory; the message says for what, and what can be done."""


ReadWeights = Callable[[str], Any]
"""Reads a file of tensors safely: hand in `checkpoints.trusted.load_tensors`."""

Pass = tuple[Any, Any, Mapping[str, Any]]
"""Result of one pass of a task over a batch: loss sum, count, facts that are sums."""


class GradientSize(NamedTuple):
    """The size of the gradient of one weight.

    Attributes:
        mean, largest: of the absolute values.
        zeros: fraction of the values that are exactly 0.
    """

    mean: float
    largest: float
    zeros: float


@dataclass(frozen=True)
class Traced:
    """Measurements from a trace of some updates.

    Attributes:
        seconds: host time in forward, backward, optimizer and communication, as far as they can be told apart.
        modules: seconds by path of nested modules, outermost first; each includes the modules inside it.
        memory: (seconds, bytes allocated) over time.
        operations: device seconds by the name of an operation of a compiled program.
    """

    seconds: dict[str, float]
    modules: dict[tuple[str, ...], float]
    memory: list[tuple[float, float]]
    operations: dict[str, float] = field(default_factory=dict)


class Task:
    """What an engine needs from a task. One that only computes a loss overrides `train_step` and `valid_step`.

    Attributes:
        model: the network that is trained.
    """

    model: Any

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load pretrained weights into the model, once, before the first update. Does nothing by default."""

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this training, and why (`is 4, but ... Leave it out.`).

        Training warns of those that the config sets. Keys at their default may be among them.
        """
        return {}

    def begin_update(self, number: int) -> None:
        """Prepare for an update. Called before each one with its number, from 1."""

    def train_step(self, batch: Batch) -> Pass:
        """Return (loss sum, count, facts that are sums)."""
        raise NotImplementedError

    def train_passes(self, batch: Batch) -> Generator[Pass]:
        """Yield (loss sum, count, facts that are sums) for each pass over a batch; most tasks make one.

        The engine runs the backward pass before it asks for the next, so a pass may use the gradients of the previous.
        """
        yield self.train_step(batch)

    def valid_step(self, batch: Batch) -> Predictions:
        """Return the predictions of one batch."""
        raise NotImplementedError

    def row_functions(self) -> Sequence[tuple[object, str]]:
        """Return the methods that process each row of the network's outputs independently, as (object, name)."""
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the task other than the weights, for resuming."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Schedule(Protocol):
    """What an engine needs from a learning rate schedule: functions of the update's number (from 1) and of scores."""

    def factor(self, num_update: int) -> float:
        """Return the multiple of the learning rate."""
        ...

    def momentum(self, num_update: int) -> float | None:
        """Return the first Adam beta, None to leave it."""
        ...

    def take_score(self, score: float) -> None:
        """Adapt to the score of an evaluation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state that depends on past scores, {} if there is none."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        ...


def rates_of(schedule: Schedule | None, number: int) -> tuple[float, float | None]:
    """Return the factor of the learning rate and the momentum of update `number`, as plain numbers.

    Raises:
        ConfigError: a user's schedule returns something else than a factor of at least 0.
    """
    if schedule is None:
        return 1.0, None
    given, momentum = schedule.factor(number), schedule.momentum(number)
    try:
        factor = float(given)
    except (TypeError, ValueError):
        factor = nan
    if not 0.0 <= factor < inf:
        problem = f"is {type(schedule).__name__}, whose factor of update {number} is {given!r}."
        raise refusal("lr_scheduler", problem, "Return a number of at least 0 from factor().")
    if momentum is None:
        return factor, None
    try:
        share = float(momentum)
    except (TypeError, ValueError):
        share = nan
    if not 0.0 <= share < 1.0:
        problem = f"is {type(schedule).__name__}, whose momentum of update {number} is {momentum!r}."
        remedy = "Return a number in [0, 1) from momentum(), or None to leave it."
        raise refusal("lr_scheduler", problem, remedy)
    return factor, share


def schedule_state(schedule: Schedule | None) -> dict[str, Any]:
    """Return the state of a schedule and the name of its class, for a snapshot; {} if it has no state."""
    state = {} if schedule is None else schedule.state_dict()
    if schedule is not None and not state and not type(schedule).__module__.startswith("xdpx.") and _counts(schedule):
        log.warning(
            f"lr_scheduler: {type(schedule).__name__} gives other factors for the same update after other calls, and "
            "its state_dict() is empty: a resumed run would not continue as before. Let factor() depend on num_update "
            "alone, or override state_dict and load_state_dict.",
            once=True,
        )
    return {"of": type(schedule).__name__, **state} if state else {}


def _counts(schedule: Schedule) -> bool:
    """Return whether the factor of an update depends on the calls before it, such as by a counter of its own."""
    if any(isinstance(value, Iterator) for value in vars(schedule).values()):  # of which no copy can be made
        return True
    try:
        first, second = deepcopy(schedule), deepcopy(schedule)
    except TypeError:  # it holds a lock, a file or the like
        return False
    first.factor(1)
    return bool(first.factor(2) != second.factor(2))


def resume_schedule(schedule: Schedule | None, saved: Mapping[str, Any]) -> None:
    """Restore the state of a schedule from a snapshot; a schedule of another class starts from the beginning."""
    state = dict(saved.get("schedule") or {})
    if schedule is not None and state.pop("of", None) == type(schedule).__name__:
        schedule.load_state_dict(state)


class Updater(Protocol):
    """What the loop needs from an engine. The loop never looks inside a state or a batch.

    Attributes:
        hear_nonfinite: called with the number of a non-finite update, before it is taken or left out, by an engine
            that checks every update; on all processes.
        checks_each: whether it is called for every non-finite update; otherwise some are only found when facts are
            fetched, many updates later.
    """

    hear_nonfinite: Callable[[int], object]
    checks_each: bool

    def update(self, state: State, group: Sequence[Batch]) -> tuple[State, Facts]:
        """Take one optimizer update from a group of micro-batches.

        The gradient is that of (sum of loss sums) / (sum of counts) over the whole group, so splitting a group into
        more micro-batches gives the same gradient mathematically. Randomness depends only on (seed, number of updates).
        Facts: loss_sum, count, num_tokens, grad_norm (before clipping), clipped (0 or 1), learning_rate, and the sums
        of the loss. A non-finite gradient leaves the weights unchanged, unless the engine is configured to apply it:
        grad_norm shows it, and under fp16, where it is part of the search for a loss scale, skipped is 1. An engine
        that leaves such updates out reports 0 for their sums and norm, and 1 for skipped.

        Raises:
            OutOfMemory: even after splitting micro-batches, where the engine may do so; the weights are unchanged.
        """
        ...

    def origin(self, state: State, group: Sequence[Batch], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appears in update `number`; None if everything is finite.

        Forward and backward run as in `update`, with the same random numbers, and are checked module by module;
        nothing changes. `state` must hold the weights before that update. On all processes.
        """
        ...

    def again(self, state: State, saved: Mapping[str, Any], number: int) -> NonFiniteOrigin | None:
        """Return the same as `origin`, for an update that was saved to a file, from the state saved with it.

        Args:
            state: of this training; may be changed, because training does not continue from it.
            saved: "state" as `snapshot` returned it, and "group": the batches, as arrays on the host.
            number: of the update.
        """
        ...

    def traced(self, state: State, folder: str) -> AbstractContextManager[Traced]:
        """Return a context manager that traces the updates inside it into a local folder."""
        ...


class Engine(Updater, Protocol):
    """One device backend: an `Updater`, and what else `x-train` and its callbacks need.

    Attributes:
        tell: called with the name of each of `events` when it happens; set by the code that calls callbacks.
    """

    tell: Callable[[str], object]

    @property
    def packages(self) -> Sequence[str]:
        """The packages whose versions affect results, beyond those that every run records."""
        ...

    @property
    def events(self) -> Sequence[str]:
        """The events that happen inside an update, by their names in the Trainer."""
        ...

    @property
    def device_text(self) -> str:
        """The name of the device as its vendor gives it; for a CPU also what affects the last bits."""
        ...

    def model_and_optimizer(self, state: State) -> tuple[Any, Any]:
        """Return the model and the optimizer that callbacks may see; None for either that does not exist."""
        ...

    def closing_line(self) -> str:
        """Return a remark to log at the end of a training, "" for none."""
        ...

    def start(self, seed: int) -> State:
        """Build the model and its optimizer and load pretrained weights; `seed` decides every random weight."""
        ...

    def score(self, state: State, batch: Batch) -> Predictions:
        """Return predictions and sums for one batch, with averaged (EMA) weights if there are any. No gradient."""
        ...

    def take_score(self, state: State, score: float) -> None:
        """Pass the score of an evaluation, the same on all processes, to the schedule."""
        ...

    def snapshot(self, state: State, *, wanted: bool | None = None) -> dict[str, Any]:
        """Return a copy of all that a bit-exact resume needs: weights, optimizer, EMA, scaler, update count.

        Args:
            state: on all processes.
            wanted: whether this process needs the arrays; with None only the first process does.
        """
        ...

    def restore(self, saved: Mapping[str, Any]) -> State:
        """Rebuild the state that `snapshot` copied, also on another device."""
        ...

    def weights(self, state: State) -> dict[str, Any]:
        """Return the weights to save: averaged (EMA) ones if there are any, float32, on the host."""
        ...

    def is_finite(self, state: State) -> bool:
        """Return whether every trained weight is finite. Waits for the device once."""
        ...

    def gradient_sizes(self, state: State) -> dict[str, GradientSize]:
        """Return the gradient size of each weight in the latest update, by name. Waits for the device once."""
        ...

    def with_weights(self, weights: Mapping[str, Any]) -> State:
        """Return a state that can only `score`, with weights as `weights` returns them; loads nothing pretrained."""
        ...

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device and return plain floats. The only place where the host waits for numbers."""
        ...

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return numpy arrays for tensors with rows, and floats for scalars."""
        ...
