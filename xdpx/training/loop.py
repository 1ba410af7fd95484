"""Take optimizer updates. This file decides *when*; the engine decides *how*; callbacks decide everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, NamedTuple

from xdpx.datasets.plan import Position
from xdpx.engines.base import Batch, Facts, State, Updater
from xdpx.training.progress import Progress
from xdpx.utils import collecting

Groups = Iterable[tuple[Position, Sequence[Batch]]]
"""The micro-batches of each update, with the position in the data after it."""


END = "end"
"""Value of `Progress.cut_at` if a signal cut short `on_end` of a callback, and not its `on_step`."""


class Interrupted(BaseException):
    """Raised when the run has been asked to stop: by `groups` instead of waiting for data, in callbacks by evaluations.

    It may be raised at any line that makes a batch, and is no Exception: a user's `except Exception` there, which skips
    a bad row, must not catch it. A callback that raises it leaves everything as it was before its event: the
    resumed run calls it again.
    """


class Step(NamedTuple):
    """Facts about the update that just finished."""

    number: int  # 1-based count of optimizer updates since the very beginning
    state: State
    facts: Facts  # may still live on the device
    place: Position  # in the data, after this update
    cut_at: str = ""  # name of the callback that a signal cut short at this step, which a resumed run calls again


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
    guard: Callable[[], object] = lambda: None  # on all processes, before writing: raises if the folder is lost

    @property
    def number(self) -> int:
        """The number of updates taken so far."""
        return self.progress.num_updates


class Callback:
    """Observes training, and may ask to stop it. For every event, callbacks are called in the order of their list.

    Attributes:
        name: key of its state in a checkpoint, unique among the callbacks of a run; "" if it has no state. A callback
            with a name may raise `Interrupted` in `on_step`, and any one in `on_start` and `on_end`.
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
        """Release files and progress bars. Always called, after the other events but `on_told`."""

    def on_told(self) -> None:
        """Do what may be lost, like drawing, once the status file tells the end. Not called after an exception."""

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
        try:
            for callback in callbacks:
                callback.on_start(session)
        except Interrupted as interruption:  # no update was taken: there is nothing to save
            return Stop(str(interruption), finished=False)
        return _end(session, _walk(session, groups, callbacks), callbacks)
    finally:
        for callback in callbacks:
            callback.close()


def _walk(session: Session, groups: Groups, callbacks: Sequence[Callback]) -> Stop:
    """Take steps until a callback returns a Stop. All callbacks are called for each step; the first Stop counts."""
    try:
        stop = _call_rest(session, callbacks)
        if stop:
            return stop
        for step in take_steps(session.engine, session.state, groups, after=session.number, until=session.until):
            session.state = step.state
            session.progress.advance(step.number, step.place)
            collecting.as_usual()  # all is imported and traced
            stop = _call(session, step, callbacks)
            if stop:
                return stop
    except Interrupted as interruption:
        return Stop(str(interruption), finished=False)
    reached = session.number >= session.until
    return Stop(f"reached step {session.until}" if reached else f"the data ran out at step {session.number}")


def _call(session: Session, step: Step, callbacks: Sequence[Callback], stop: Stop | None = None) -> Stop | None:
    """Call `on_step` of the callbacks; return `stop` or, if that is None, the first Stop that one of them returns.

    If a signal cuts one short, the progress records which: a resumed run calls it and those after it.
    """
    for callback in callbacks:
        try:
            found = callback.on_step(session, step)
        except Interrupted:
            session.progress.cut_at, session.progress.cut_reason = callback.name, stop.reason if stop else ""
            raise
        stop = stop or found
    return stop


def _call_rest(session: Session, callbacks: Sequence[Callback]) -> Stop | None:
    """Call the callbacks that a signal kept from seeing the last step; return the first Stop, or None."""
    progress = session.progress
    at, reason = progress.cut_at, progress.cut_reason
    progress.cut_at = progress.cut_reason = ""
    stop = Stop(reason) if reason else None
    left = list(dropwhile(lambda callback: callback.name != at, callbacks)) if at else []
    return _call(session, Step(session.number, session.state, {}, progress.position, at), left, stop)


def _end(session: Session, stop: Stop, callbacks: Sequence[Callback]) -> Stop:
    """Call `on_end` of the callbacks; return why training ended, unfinished once a signal cut one of them short."""
    for callback in callbacks:
        try:
            callback.on_end(session, stop)
        except Interrupted as interruption:
            session.progress.cut_at, session.progress.cut_reason = END, stop.reason
            stop = Stop(str(interruption), finished=False)
            callback.on_end(session, stop)
    return stop
