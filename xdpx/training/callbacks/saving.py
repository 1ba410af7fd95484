"""Which checkpoints are written and which stay, so that the wanted weights and a way to continue are always there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from xdpx.checkpoints.background import Background
from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.memory_copies import MemoryCopies, RunMemory
from xdpx.logger import log
from xdpx.training.accumulation import Diverged, MetricAccumulator
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.training.progress import Progress
from xdpx.utils.decisions import due, is_better
from xdpx.utils.pulse import pulse

OF_TRAINER = "hooks"
"""What the state of callbacks written for the Trainer is called: a run may be continued with or without them."""


@dataclass(frozen=True)
class SavePolicy:
    """What is kept of a run.

    Attributes:
        best_only, last_only: keep the weights of the best, or of the newest, evaluation only; with both, of these two.
        above_score: keep weights only when the major metric is better than this.
        resumable: also keep the full state, so that training can be continued.
        every_state: keep the full state of every evaluation, not only the newest two.
        interval: updates between full states; None saves them at evaluations.
    """

    best_only: bool = False
    last_only: bool = False
    above_score: float | None = None
    ascending: bool = True
    resumable: bool = False
    every_state: bool = False
    interval: int | None = None

    def wants_weights(self, progress: Progress) -> bool:
        """Tell whether the weights of this step are to be kept, now that they have been scored."""
        if not progress.just_evaluated:
            return False
        score, least = progress.score, self.above_score
        if least is not None and (score is None or not is_better(score, least, ascending=self.ascending)):
            return False
        return progress.is_best or self.last_only or not self.best_only

    def wants_state(self, progress: Progress) -> bool:
        """Tell whether the full state of this step is to be kept."""
        if not self.resumable:
            return False
        return progress.just_evaluated or due(progress.num_updates, self.interval)


class Checkpointing(Callback):
    """Write checkpoints: what every door does alike. Stands after every callback whose state must be in them.

    Args:
        callbacks: those whose state is saved, by their names; it is taken after all of them saw the step.
        copies: where copies of the state are kept between two saves; None keeps none.

    Attributes:
        saved_step: the last one of which something was saved; 0 before.
    """

    def __init__(
        self, accumulator: MetricAccumulator, callbacks: Sequence[Callback], copies: RunMemory | None = None
    ) -> None:
        self.saved_step = 0
        self._accumulator, self._callbacks = accumulator, callbacks
        self._memory, self._copying = copies, Background()
        self._asked = False

    def ask(self) -> None:
        """Let the step at which the run stands be saved, whatever is due."""
        self._asked = True

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Save what is wanted of this step, and keep a copy in memory where one is due."""
        self.save(session)
        if self._memory is not None and due(session.number, self._memory.interval):
            self._copy(session)
        return None

    def save(self, session: Session) -> None:
        """Save what is wanted of the step at which the run stands."""
        raise NotImplementedError

    @contextmanager
    def _writing(self, session: Session) -> Generator[None]:
        """Write a checkpoint inside.

        Raises:
            LeaseLost: the folder is another run's by now.
            Diverged: a loss was, or a weight is, NaN or infinite: such weights are never saved.
        """
        session.guard()
        self._accumulator.settle()
        refuse_nonfinite(session)
        with self._accumulator.stopwatch.paused(), pulse.doing("saving"):
            yield
        self.saved_step = session.number

    def _states(self) -> dict[str, Any]:
        """Return the states of the callbacks, by their names."""
        return {callback.name: callback.state_dict() for callback in self._callbacks if callback.name}

    # ---- copies in memory

    def _is_saved(self, session: Session) -> bool:
        """Tell whether the step at which the run stands is on disk by now."""
        raise NotImplementedError

    def _copy_of(self, session: Session) -> Callable[[], object] | None:
        """Copy the full state; return what writes the copy in the background, None if there is no room for it."""
        raise NotImplementedError

    def _copy(self, session: Session) -> None:
        """Put a copy of the full state into memory, while training goes on."""
        if self._is_saved(session):
            return
        with self._accumulator.stopwatch.paused(), pulse.doing("copying"):
            with self._copying.copying():
                write = self._copy_of(session)
            if write is not None:
                self._copying.start(write)

    def _forget_copies(self) -> None:
        """Let go of the copies in memory, once all is on disk."""
        if self._memory is not None:
            self._copying.wait()
            self._memory.forget()

    def close(self) -> None:
        """Let what is being copied come to its end."""
        with suppress(Exception):  # was logged; what ends the training counts
            self._copying.wait()


class Saving(Checkpointing):
    """Write checkpoints by `policy`; what is asked for beside it stays.

    Args:
        metadata: gives plain values that go into manifests and full states.
        values: of all keys that decide the run; they go into full states, to tell later what was changed.
        background: writes full states while training goes on; None lets it wait.
        copies: keep a copy of the state in memory between two saves; None keeps none.
    """

    name = "saving"

    def __init__(
        self,
        checkpointer: Checkpointer,
        policy: SavePolicy,
        *,
        callbacks: Sequence[Callback],
        accumulator: MetricAccumulator,
        metadata: Callable[[], Mapping[str, Any]],
        values: Mapping[str, Any] | None = None,
        background: Background | None = None,
        copies: MemoryCopies | None = None,
    ) -> None:
        super().__init__(accumulator, callbacks, copies)
        self._background, self._copies = background, copies
        self.policy = policy
        self.checkpointer = checkpointer
        self._metadata = metadata
        self._values = values
        self._asked_steps: list[int] = []  # steps whose weights were requested: they stay
        self._weights: list[int] = []  # steps whose weights the policy wanted, oldest first
        self._last_state = (0, 0, "")  # its step, the last evaluation that it knows of, and where it was cut short

    def on_start(self, session: Session) -> None:
        """Remember where the run stands: that state is on disk already. Finish the pruning that a kill cut short."""
        self._last_state = _state_key(session.progress)
        if session.number > 0:
            self._prune(session.progress)

    def save(self, session: Session) -> None:
        """Save what is wanted of the step at which the run stands."""
        state = self.policy.wants_state(session.progress) or (self._asked and self.policy.resumable)
        self._save(session, self.policy.wants_weights(session.progress), state)

    def on_end(self, session: Session, stop: Stop) -> None:
        """Save the step that was reached; an interrupted run's full state in any case."""
        progress = session.progress
        weights = self.policy.wants_weights(progress)
        if stop.finished and not weights and not self._kept_at_all and self.policy.above_score is None:
            weights = True  # every score was NaN: what was trained is kept all the same
        wants_state = self.policy.resumable or not stop.finished
        self._save(session, weights, wants_state and session.number > 0)
        if self._background is not None:
            self._background.wait()  # what is written must be whole before anybody is told
        self._forget_copies()
        if stop.finished and not self._kept_at_all:
            log.warning(
                f"no checkpoint was saved: no score was better than save_above_score {self.policy.above_score}."
            )

    def _save(self, session: Session, weights: bool, state: bool) -> None:
        number, asked, self._asked = session.number, self._asked, False
        new = (weights or asked) and number not in self._kept_at_all
        state = state and _state_key(session.progress) != self._last_state
        for wanted, steps in ((weights, self._weights), (asked, self._asked_steps)):
            if wanted and number not in steps:
                steps.append(number)
        if not new and not state:
            return
        with self._writing(session):
            if self._background is not None:
                self._background.wait()
            if new:
                self._save_weights(session)
            if state:
                self._last_state = _state_key(session.progress)
            then = self._pruning(session.progress)
            if state:
                self._save_state(session, then)
            else:
                then()

    @property
    def _kept_at_all(self) -> set[int]:
        return {*self._weights, *self._asked_steps}

    def _save_weights(self, session: Session) -> None:
        facts = {**self._metadata(), "score": session.progress.score}
        self.checkpointer.save_weights(session.number, session.engine.weights(session.state), facts=facts)

    def _save_state(self, session: Session, then: Callable[[], object]) -> None:
        """Write the full state, and do something as soon as it is whole."""
        with nullcontext() if self._background is None else self._background.copying():
            full, number = self._full(session), session.number

        def write() -> None:
            self.checkpointer.save_state(number, full, facts=full["metadata"])
            then()

        if self._background is None:
            write()
        else:
            self._background.start(write)

    def _is_saved(self, session: Session) -> bool:
        return _state_key(session.progress) == self._last_state and self._background is None

    def _copy_of(self, session: Session) -> Callable[[], object] | None:
        copies, number = self._copies, session.number
        if copies is None:
            return None
        self._accumulator.settle()
        refuse_nonfinite(session)
        full = self._full(session, wanted=copies.writes)
        if not copies.is_wanted(full):
            return None
        return lambda: copies.save(number, full, full["metadata"])

    def _full(self, session: Session, *, wanted: bool | None = None) -> dict[str, Any]:
        """Return all that is needed to continue: a copy, which later updates leave as it is.

        Args:
            session: as it stands.
            wanted: see `engines.base.Engine.snapshot`.
        """
        metadata = dict(self._metadata())
        return {
            "engine": session.engine.snapshot(session.state, wanted=wanted),
            "progress": session.progress.as_dict(),
            "callbacks": self._states(),
            "saving": self.state_dict(),
            "metadata": metadata,
            "values": self._values,
        }

    def _prune(self, progress: Progress) -> None:
        self._pruning(progress)()

    def _pruning(self, progress: Progress) -> Callable[[], object]:
        """Return what deletes all that need not stay now."""
        few = self.policy.best_only or self.policy.last_only
        weights = [*self._kept(progress), *self._asked_steps] if few else None
        states = None if self.policy.every_state else [self._last_state[0]]
        return lambda: self.checkpointer.prune(weights=weights, states=states)

    def close(self) -> None:
        """Let what is being written come to its end."""
        super().close()
        if self._background is not None:
            with suppress(Exception):  # was logged; what ends the training counts
                self._background.wait()

    def _kept(self, progress: Progress) -> list[int]:
        best = [step for step in self._weights if step == progress.best_step]
        last = self._weights[-1:]
        # Until there is a best one (every score was NaN so far), the newest takes its place.
        kept = {*(best or last if self.policy.best_only else []), *(last if self.policy.last_only else [])}
        self._weights = sorted(kept)
        return self._weights

    def state_dict(self) -> dict[str, Any]:
        """Return the steps whose weights were wanted."""
        return {"weights": list(self._weights), "asked": list(self._asked_steps)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back the steps whose weights were wanted."""
        self._weights = list(saved["weights"])
        self._asked_steps = list(saved.get("asked", []))


def refuse_nonfinite(session: Session) -> None:
    """Raise Diverged where a weight is NaN or infinite, which the last update may have made it from a finite loss."""
    if not session.engine.is_finite(session.state):
        raise Diverged(
            f"training diverged: after step {session.number} weights are NaN or infinite, though no loss was. "
            "Nothing was saved of them. Lower learning_rate, lengthen the warm-up, or set clip_norm.",
            session.number,
        )


def _state_key(progress: Progress) -> tuple[int, int, str]:
    return progress.num_updates, progress.last_eval_step, progress.cut_at


def restore(saved: Mapping[str, Any], callbacks: Sequence[Callback]) -> None:
    """Return every callback the state that it had when a full state was saved.

    Raises:
        ValueError: a part is missing, or is of a callback that is not there.
    """
    wanted = {callback.name: callback for callback in callbacks if callback.name}
    held = {**saved["callbacks"], Saving.name: saved["saving"]}
    odd = (set(wanted) ^ set(held)) - {Saving.name, OF_TRAINER}
    if odd:
        raise ValueError(f"the checkpoint and this run differ in the state of: {', '.join(sorted(odd))}.")
    for name, callback in wanted.items():
        if name in held:
            callback.load_state_dict(held[name])
