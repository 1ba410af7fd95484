"""The seam to hardware: what one device backend must be able to do. State goes in, state comes out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from xdpx.engines.origin import Origin

Batch = Mapping[str, Any]
"""What a processor collates: numpy arrays, nested one level under `net_input`. Opaque to the loop."""

State = Any
"""Opaque to everybody but the engine that made it."""

Facts = Mapping[str, Any]
"""Scalars that may still live on the device: nothing waits for them until somebody prints them."""

Predictions = Mapping[str, Any]
"""Per batch: tensors with one row per sample, which are joined, and single numbers, which are summed."""


Split = Callable[[Batch, int], Sequence[Batch]]
"""Cuts a batch into at most so many smaller ones, in order, which together are the batch: `Processor.split`."""


class OutOfMemory(OSError):
    """The memory of the device does not suffice; the message says for what, and what can be done."""


ReadWeights = Callable[[str], Any]
"""Reads a file of tensors safely: hand in `checkpoints.trusted.load_tensors`."""

Pass = tuple[Any, Any, Mapping[str, Any]]
"""What a task makes of a batch: loss sum, count, facts that are sums."""


class GradientSize(NamedTuple):
    """How large the gradient of one weight is.

    Attributes:
        mean, largest: of the absolute values.
        zeros: share of them that is exactly 0.
    """

    mean: float
    largest: float
    zeros: float


@dataclass(frozen=True)
class Traced:
    """What a trace of some updates tells.

    Attributes:
        seconds: of the host in forward, backward, optimizer and communication, as far as they can be told apart.
        modules: seconds by the path of modules that contain one another, each with its parts.
        memory: (seconds, bytes taken) over time.
        operations: seconds of the device by the name of an operation of a compiled program.
    """

    seconds: dict[str, float]
    modules: dict[tuple[str, ...], float]
    memory: list[tuple[float, float]]
    operations: dict[str, float] = field(default_factory=dict)


class Task:
    """All that an engine asks of a task. One that only computes a loss overrides `train_step` and `valid_step`.

    Attributes:
        model: the network that is trained.
    """

    model: Any

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Let the model take over pretrained weights, once, before the first update. Here there are none."""

    def begin_update(self, number: int) -> None:
        """Hear which update comes, from 1."""

    def train_step(self, batch: Batch) -> Pass:
        """Return (loss sum, count, facts that are sums)."""
        raise NotImplementedError

    def train_passes(self, batch: Batch) -> Generator[Pass]:
        """Yield what each pass over a batch gives; most tasks take one.

        The engine goes backward before it asks for the next, so that a pass may follow the gradients of the one before.
        """
        yield self.train_step(batch)

    def valid_step(self, batch: Batch) -> Predictions:
        """Return the predictions of one batch."""
        raise NotImplementedError

    def row_functions(self) -> Sequence[tuple[object, str]]:
        """Name the methods that make something of each row of the network's outputs by itself: (object, method)."""
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Return what the task has learnt beside the weights, to resume with."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Schedule(Protocol):
    """What an engine needs of a learning rate schedule: functions of the update's number (from 1) and of scores."""

    def factor(self, num_update: int) -> float:
        """Return the multiple of the learning rate."""
        ...

    def momentum(self, num_update: int) -> float | None:
        """Return the first Adam beta, None to leave it."""
        ...

    def take_score(self, score: float) -> None:
        """Hear the score of an evaluation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what scores have changed, {} for nothing."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        ...


def schedule_state(schedule: Schedule | None) -> dict[str, Any]:
    """Return what a snapshot holds of a schedule: its state, if it has one, and whose that is."""
    state = {} if schedule is None else schedule.state_dict()
    return {"of": type(schedule).__name__, **state} if state else {}


def resume_schedule(schedule: Schedule | None, saved: Mapping[str, Any]) -> None:
    """Put a schedule into the state that it had; one of another kind begins anew."""
    state = dict(saved.get("schedule") or {})
    if schedule is not None and state.pop("of", None) == type(schedule).__name__:
        schedule.load_state_dict(state)


class Updater(Protocol):
    """What the loop needs of an engine. It never looks inside a state or a batch.

    Attributes:
        hear_nonfinite: called with the number of an update that is NaN or infinite, before anything becomes of it, by
            an engine that looks at each one; on all processes.
    """

    hear_nonfinite: Callable[[int], object]

    def update(self, state: State, group: Sequence[Batch]) -> tuple[State, Facts]:
        """Take one optimizer update from a group of micro-batches.

        The gradient is that of (sum of loss sums) / (sum of counts) over the whole group, so cutting a group into
        more micro-batches changes nothing in the mathematics. Randomness depends on (seed, number of updates) alone.
        Facts: loss_sum, count, num_tokens, grad_norm (before clipping), clipped (0 or 1), learning_rate, and the sums
        of the loss. A gradient that is not finite leaves the weights as they were, unless the engine was told to take
        it: grad_norm shows it, and under fp16, where it is part of the search for a loss scale, skipped is 1. An engine
        that leaves such updates out tells 0 for their sums and norm, and skipped is 1.

        Raises:
            OutOfMemory: also in parts, where the engine may cut micro-batches; the weights are as they were.
        """
        ...

    def origin(self, state: State, group: Sequence[Batch], number: int) -> Origin | None:
        """Return where NaN or infinity comes from when update `number` is taken; None where all of it is finite.

        Forward and backward go as in `update`, with the same random numbers, and are looked at module by module;
        nothing changes. `state` must hold the weights before that update. On all processes.
        """
        ...

    def again(self, state: State, saved: Mapping[str, Any], number: int) -> Origin | None:
        """Return what `origin` would have, of an update that was kept in a file, from the state of that file.

        Args:
            state: of this training, which may be changed: it is not gone on with.
            saved: "state" as `snapshot` gave it, and "group" of batches, arrays of the host.
            number: of the update.
        """
        ...

    def traced(self, state: State, folder: str) -> AbstractContextManager[Traced]:
        """Return the context in which all updates are traced into a local folder."""
        ...


class Engine(Updater, Protocol):
    """One device backend: all that the callbacks of `x-train` need, too.

    Attributes:
        tell: called with the name of each of `events`; set by what calls callbacks.
    """

    tell: Callable[[str], object]

    @property
    def packages(self) -> Sequence[str]:
        """Name the packages whose versions decide a result, beside what every run writes down."""
        ...

    @property
    def events(self) -> Sequence[str]:
        """Name what is told inside an update, by the names of the events of a Trainer."""
        ...

    @property
    def device_text(self) -> str:
        """Name what is computed on, as its maker calls it; of a CPU also what decides the last bits."""
        ...

    def model_and_optimizer(self, state: State) -> tuple[Any, Any]:
        """Return the model and the optimizer that callbacks are shown; None for what there is not."""
        ...

    def closing_line(self) -> str:
        """Say what was noticed that is worth a line at the end of a training, "" for nothing."""
        ...

    def start(self, seed: int) -> State:
        """Build the model and its optimizer and take over pretrained weights; `seed` decides every random weight."""
        ...

    def score(self, state: State, batch: Batch) -> Predictions:
        """Return the task's predictions and sums for one batch, with averaged (EMA) weights when kept. No gradient."""
        ...

    def take_score(self, state: State, score: float) -> None:
        """Let the schedule hear the score of an evaluation, the same one on all processes."""
        ...

    def snapshot(self, state: State, *, wanted: bool | None = None) -> dict[str, Any]:
        """Copy out everything needed to continue bit for bit: weights, optimizer, EMA, scaler, update count.

        Args:
            state: on all processes.
            wanted: whether this process needs the arrays; None is the first process alone.
        """
        ...

    def restore(self, saved: Mapping[str, Any]) -> State:
        """Rebuild the state that `snapshot` copied, also on another device."""
        ...

    def weights(self, state: State) -> dict[str, Any]:
        """Return the weights a user wants to keep: averaged (EMA) ones when kept, float32, on the host."""
        ...

    def is_finite(self, state: State) -> bool:
        """Tell whether every weight that is trained is finite. Waits for the device, once."""
        ...

    def gradient_sizes(self, state: State) -> dict[str, GradientSize]:
        """Return the size of the gradient of each weight by name, of the update that was just taken. Waits once."""
        ...

    def with_weights(self, weights: Mapping[str, Any]) -> State:
        """Return a state for `score` alone, from what `weights` gave: no optimizer, nothing pretrained is read."""
        ...

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device and return plain floats. The only place where the host waits for numbers."""
        ...

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return numpy arrays for tensors with rows, and floats for single numbers."""
        ...
