"""End training early: no better score, a learning rate of `min_lr`, a diverging loss, or a signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from xdpx.logger import log
from xdpx.training.callbacks.logging import Logging
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.training.preemption import Preemption
from xdpx.utils.distributed_utils import any_process

HIGH_LOSSES = 3
"""Logged losses above `max_loss` in a row that end the training."""


@dataclass(frozen=True)
class StopRules:
    """When to stop early. Steps are optimizer updates."""

    tolerance: int | None = None  # steps without a better score after which training stops
    min_steps: int = 1  # before this step, training does not stop for lack of a better score
    warmup: int = 0  # nor before this one
    min_lr: float = 0.0
    max_loss: float = float("inf")


class Stopping(Callback):
    """Ends training by `rules`. Must come after logging and evaluating, whose results it reads."""

    name = "stopping"

    def __init__(self, rules: StopRules, logging: Logging) -> None:
        self.rules = rules
        self._logging = logging
        self._high_losses = 0
        self._rate_was_high = False

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Return a Stop if a rule applies to the new scores, or to a row that was just logged."""
        reasons = [self._no_better_score(session)]
        if self._logging.logged_step == step.number:
            reasons += [self._rate_is_low(), self._loss_is_high()]
        reason = next((reason for reason in reasons if reason), None)
        return Stop(reason) if reason else None

    def _no_better_score(self, session: Session) -> str | None:
        rules, progress = self.rules, session.progress
        if rules.tolerance is None or not progress.just_evaluated:
            return None
        if progress.num_updates < max(rules.min_steps, rules.warmup):
            return None
        since = progress.num_updates - progress.best_step
        if since <= rules.tolerance:
            return None
        best = f"the best was at step {progress.best_step}"
        return f"no better score for {since} steps (tolerance {rules.tolerance}); {best}"

    def _rate_is_low(self) -> str | None:
        rate = self._logging.row.get("lr")
        if not isinstance(rate, float):
            return None
        if rate > self.rules.min_lr:
            self._rate_was_high = True  # a warm-up that begins below min_lr must not end the training
            return None
        return f"the learning rate {rate:g} reached min_lr {self.rules.min_lr:g}" if self._rate_was_high else None

    def _loss_is_high(self) -> str | None:
        loss = self._logging.row["loss"]
        high = isinstance(loss, float) and loss > self.rules.max_loss
        self._high_losses = self._high_losses + 1 if high else 0
        if self._high_losses < HIGH_LOSSES:
            return None
        return f"the logged loss was above max_loss {self.rules.max_loss:g} {HIGH_LOSSES} times in a row"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rules."""
        return {"high_losses": self._high_losses, "rate_was_high": self._rate_was_high}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._high_losses = int(saved["high_losses"])
        self._rate_was_high = bool(saved["rate_was_high"])


class SavesOnDemand(Protocol):
    """A callback that writes a checkpoint on request."""

    def ask(self) -> None:
        """Request a checkpoint of the current step, even if none is due."""
        ...


def any_asked(told: bool, number: int) -> bool:
    """Return whether any process was told to stop; the same on all processes, after update `number`."""
    del number
    return any_process(told)


class StopWhenAsked(Callback):
    """Ends training after a signal, all processes after the same update; the run can be resumed.

    Args:
        preemption: receives the signals of this process.
        any_asked: how the processes find out, after each update, that one of them was told to stop.
        saving: if given, training saves a checkpoint and continues; None: it ends.
    """

    def __init__(
        self, preemption: Preemption, *, any_asked: Callable[[bool, int], bool] = any_asked,
        saving: SavesOnDemand | None = None,
    ) -> None:  # fmt: skip
        self._preemption, self._any_asked, self._saving = preemption, any_asked, saving
        self._has_saved = False

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """After a signal, return a Stop, or save and continue."""
        received = self._preemption.received
        if self._has_saved or not self._any_asked(received is not None, step.number):
            return None
        received = received or "a signal to another process"
        if self._saving is None:
            return Stop(f"interrupted by {received} after step {step.number}", finished=False)
        self._has_saved = self._preemption.goes_on = True
        self._saving.ask()
        log.info(f"{received}: saving after step {step.number}, then continuing")
        return None
