"""Take optimizer updates. This file decides *when*; the engine decides *how*; callbacks decide everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdpx.datasets.plan import Position
from xdpx.engines.base import Batch, Facts, State, Updater
from xdpx.training.progress import Progress

Groups = Iterable[tuple[Position, Sequence[Batch]]]
"""The micro-batches of each update, with the position in the data after it."""


class Interrupted(BaseException):
    """Raised by `groups` instead of waiting for data, when the run has been asked to stop.

    It may come at any line that makes a batch; there, an `except Exception` that leaves out a bad row must not take it.
    """


@dataclass(frozen=True)
class Step:
    """Facts about the update that just finished."""

    number: int  # 1-based count of optimizer updates since the very beginning
    state: State
    facts: Facts  # may still live on the device
    place: Position  # in the data, after this update


@dataclass(frozen=True)
class Stop:
    """Why training should end. `finished` is false if it was interrupted and can be continued."""

    reason: str
    finished: bool = True


@dataclass
class Session:
    """One stretch of training: what callbacks see of it, and what a checkpoint of it holds."""

    engine: Any  # the loop needs an Updater; callbacks that need more get an engine that has it
    state: State
    progress: Progress
    until: int  # the last update of this stretch
    total: int  # the last update of the learning rate schedule
    guard: Callable[[], object] = lambda: None  # on all processes, before writing: raises when the folder is another's

    @property
    def number(self) -> int:
        """The number of updates taken so far."""
        return self.progress.num_updates


class Callback:
    """Observes training, and may ask to stop it. For every event, callbacks are called in the order of their list.

    Attributes:
        name: key of its state in a checkpoint, unique among the callbacks of a run; "" if it has no state.
    """

    name = ""

    def on_start(self, session: Session) -> None:
        """Prepare, after the state was built or restored and before the first update."""

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Called after each update, with `session` at that update. Return a reason to end, or None."""
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Finish after the last update. Not called when training ends by an exception."""

    def close(self) -> None:
        """Release files and progress bars. Always called, last."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint must keep (plain values only) for an exact resume."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. Called before `on_start`."""


def take_steps(engine: Updater, state: State, groups: Groups, *, after: int, until: int) -> Iterator[Step]:
    """Yield one `Step` per update, from `after + 1` up to and including `until`.

    Ends early when `groups` runs out. Never takes a group from it without training on that group.
    """
    for number, (place, group) in zip(range(after + 1, until + 1), groups, strict=False):
        state, facts = engine.update(state, group)
        yield Step(number, state, facts, place)


def fit(session: Session, groups: Groups, callbacks: Sequence[Callback]) -> Stop:
    """Train from the current update of `session` to its last one, and return why training ended."""
    try:
        for callback in callbacks:
            callback.on_start(session)
        stop = _walk(session, groups, callbacks)
        for callback in callbacks:
            callback.on_end(session, stop)
    finally:
        for callback in callbacks:
            callback.close()
    return stop


def _walk(session: Session, groups: Groups, callbacks: Sequence[Callback]) -> Stop:
    """Take steps until a callback returns a Stop. All callbacks are called for each step; the first Stop counts."""
    try:
        for step in take_steps(session.engine, session.state, groups, after=session.number, until=session.until):
            session.state = step.state
            session.progress.advance(step.number, step.place)
            stops = [callback.on_step(session, step) for callback in callbacks]
            if any(stops):
                return next(stop for stop in stops if stop)
    except Interrupted as interruption:
        return Stop(str(interruption), finished=False)
    reached = session.number >= session.until
    return Stop(f"reached step {session.until}" if reached else f"the data ran out at step {session.number}")
