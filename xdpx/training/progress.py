"""The progress of a run: everything but the engine's state that an exact resume needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from xdpx.datasets.plan import Position
from xdpx.utils.decisions import is_better

NEWER = frozenset({"cut_at", "cut_reason"})
"""Fields that checkpoints of earlier versions lack."""


@dataclass
class Progress:
    """Plain numbers that are in every full checkpoint and in nothing else."""

    num_updates: int = 0
    epoch: int = 1
    group: int = 0
    group_size: int = 1  # samples per update, so that a place can be carried over when it changes
    total_steps: int = 0  # of the schedule; kept, because shards that arrive later must not bend it
    samples: int = 0
    tokens: int = 0
    train_seconds: float = 0.0
    score: float | None = None  # of the major metric, at `last_eval_step`
    best_score: float | None = None
    best_step: int = 0
    last_eval_step: int = 0
    cut_at: str = ""  # the callback whose evaluation a signal cut short, from which this step goes on; see `loop`
    cut_reason: str = ""  # why training was to end after this step, as far as it was known by then

    @property
    def position(self) -> Position:
        """The place in the data."""
        return Position(self.epoch, self.group)

    def advance(self, num_updates: int, place: Position) -> None:
        """Move on to the place in the data reached after `num_updates`."""
        self.num_updates, self.epoch, self.group = num_updates, place.epoch, place.group
        self.samples += self.group_size

    def take_score(self, score: float, *, ascending: bool) -> bool:
        """Record the score of an evaluation at this step; return whether it is a new best. NaN or a tie never is."""
        self.score = score
        self.last_eval_step = self.num_updates
        if not is_better(score, self.best_score, ascending=ascending):
            return False
        self.best_score = score
        self.best_step = self.num_updates
        return True

    def forget_best(self) -> None:
        """Forget the best score, and count the updates without improvement from here."""
        self.best_score, self.best_step = None, self.num_updates

    @property
    def just_evaluated(self) -> bool:
        """Whether the weights of the current step have been scored."""
        return 0 < self.num_updates == self.last_eval_step

    @property
    def is_best(self) -> bool:
        """Whether the current step has the best score so far."""
        return self.just_evaluated and self.best_step == self.num_updates

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Progress:
        """Return the progress saved by `as_dict`.

        Raises:
            ValueError: a field is unknown or missing, because another version wrote `saved`; the message names it.
        """
        known = {field.name for field in fields(cls)}
        odd = (known ^ set(saved)) - (NEWER - set(saved))
        if odd:
            names = ", ".join(sorted(odd))
            raise ValueError(f"the checkpoint was written by another version of xdpx: progress differs in {names}.")
        return cls(**saved)
