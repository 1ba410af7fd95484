"""Write checkpoints, and delete those that are no longer needed: the wanted weights and a full state always remain."""

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
"""Name of the state of callbacks written for the Trainer; a run may be resumed with or without them."""
EPOCH_END = "epoch_end"
"""Name of what they request at the end of an epoch, after saving: it has no state in a checkpoint."""


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
        """Return whether to keep the weights of this step: only of one that has just been scored."""
        if not progress.just_evaluated:
            return False
        score, least = progress.score, self.above_score
        if least is not None and (score is None or not is_better(score, least, ascending=self.ascending)):
            return False
        return progress.is_best or self.last_only or not self.best_only

    def wants_state(self, progress: Progress) -> bool:
        """Return whether to keep the full state of this step."""
        if not self.resumable:
            return False
        return progress.just_evaluated or due(progress.num_updates, self.interval)


class Checkpointing(Callback):
    """Base of the callbacks that write checkpoints, in every door. Must come after all whose state is saved.

    Args:
        accumulator: settled before each save, so that a loss of NaN is noticed.
        callbacks: those whose state is saved, by their names, after all of them have seen the step.
        copies: where copies of the state are kept in memory between two saves; None keeps none.

    Attributes:
        saved_step: the last step of which something was saved; 0 before the first.
    """

    def __init__(
        self, accumulator: MetricAccumulator, callbacks: Sequence[Callback], copies: RunMemory | None = None
    ) -> None:
        self.saved_step = 0
        self._accumulator, self._callbacks = accumulator, callbacks
        self._memory, self._copying = copies, Background()
        self._asked = False

    def ask(self) -> None:
        """Request a checkpoint of the current step, even if none is due."""
        self._asked = True

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Save what is due at this step, and keep a copy in memory if that is due."""
        self.save(session)
        if self._memory is not None and due(session.number, self._memory.interval):
            self._copy(session)
        return None

    def save(self, session: Session) -> None:
        """Save what is due at the current step."""
        raise NotImplementedError

    @contextmanager
    def _writing(self, session: Session) -> Generator[None]:
        """Check, before a checkpoint is written inside the block, that it may be; pause the measured time meanwhile.

        Raises:
            LeaseLost: another run has taken over the folder.
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
        """Return whether the full state of the current step is on disk."""
        raise NotImplementedError

    def _copy_of(self, session: Session) -> Callable[[], object] | None:
        """Copy the full state; return the function that writes the copy in the background, None if there is no room."""
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
        """Delete the copies in memory: everything is on disk."""
        if self._memory is not None:
            self._copying.wait()
            self._memory.forget()

    def close(self) -> None:
        """Wait for a copy in progress."""
        with suppress(Exception):  # logged already; must not hide why training ends
            self._copying.wait()


class Saving(Checkpointing):
    """Writes the checkpoints of `x-train` by a policy; those requested besides are never deleted.

    Args:
        checkpointer: writes and deletes them.
        policy: which are written and kept.
        metadata: returns plain values that go into manifests and full states.
        values: of all keys that decide the run; they go into full states, to tell later what was changed.
        background: writes full states while training goes on; None makes training wait.
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
        """Note that the state a run resumes from is on disk already; finish the pruning that a kill cut short."""
        self._last_state = _state_key(session.progress)
        if session.number > 0:
            self._prune(session.progress)

    def save(self, session: Session) -> None:
        """Save what is due at the current step."""
        state = self.policy.wants_state(session.progress) or (self._asked and self.policy.resumable)
        self._save(session, self.policy.wants_weights(session.progress), state)

    def on_end(self, session: Session, stop: Stop) -> None:
        """Save the last step: its weights if wanted, and for an interrupted run always the full state."""
        progress = session.progress
        weights = self.policy.wants_weights(progress)
        if stop.finished and not weights and not self._kept_at_all and self.policy.above_score is None:
            weights = True  # every score was NaN: the trained weights are kept nevertheless
        wants_state = self.policy.resumable or not stop.finished
        self._save(session, weights, wants_state and session.number > 0)
        if self._background is not None:
            self._background.wait()  # the status says that the run ended only once its files are complete
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
        """Write the full state, and call `then` once it is complete."""
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
        """Return a copy of everything needed to resume, which later updates do not change.

        Args:
            session: at the step to copy.
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
        """Return a function that deletes the weights and states that need not be kept now."""
        few = self.policy.best_only or self.policy.last_only
        weights = [*self._kept(progress), *self._asked_steps] if few else None
        states = None if self.policy.every_state else [self._last_state[0]]
        return lambda: self.checkpointer.prune(weights=weights, states=states)

    def close(self) -> None:
        """Wait for what is being written."""
        super().close()
        if self._background is not None:
            with suppress(Exception):  # logged already; must not hide why training ends
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
        """Restore what `state_dict` returned."""
        self._weights = list(saved["weights"])
        self._asked_steps = list(saved.get("asked", []))


def refuse_nonfinite(session: Session) -> None:
    """Raise Diverged if a weight is NaN or infinite, which the last update may have made it from a finite loss."""
    if not session.engine.is_finite(session.state):
        raise Diverged(
            f"training diverged: after step {session.number} weights are NaN or infinite, though no loss was. "
            "Nothing was saved of them. Lower learning_rate, lengthen the warm-up, or set clip_norm.",
            session.number,
        )


def _state_key(progress: Progress) -> tuple[int, int, str]:
    return progress.num_updates, progress.last_eval_step, progress.cut_at


def restore(saved: Mapping[str, Any], callbacks: Sequence[Callback]) -> None:
    """Restore the state of every callback from a full state.

    Raises:
        ValueError: the state of a callback is missing, or belongs to one that this run does not have.
    """
    wanted = {callback.name: callback for callback in callbacks if callback.name}
    held = {**saved["callbacks"], Saving.name: saved["saving"]}
    odd = (set(wanted) ^ set(held)) - {Saving.name, OF_TRAINER, EPOCH_END}
    if odd:
        raise ValueError(f"the checkpoint and this run differ in the state of: {', '.join(sorted(odd))}.")
    for name, callback in wanted.items():
        if name in held:
            callback.load_state_dict(held[name])
