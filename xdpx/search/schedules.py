"""Schedules, which decide what a free worker does next; those that stop trials early are in `bracket` and `halving`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from xdpx.config import parameters as declare
from xdpx.config.registry import Registry
from xdpx.search.trials import Trial, Trials

schedules: Registry[Any] = Registry(
    "schedule",
    {
        "asha": "xdpx.search.halving:Asha",
        "bracket": "xdpx.search.bracket:Bracket",
        "full": "xdpx.search.schedules:Full",
        "hyperband": "xdpx.search.halving:Hyperband",
        "one_epoch": "xdpx.search.halving:OneEpoch",
    },
    base="xdpx.search.schedules:Schedule",
    adopts=True,
)
register = schedules.register


@dataclass(frozen=True)
class Budget:
    """Length of one whole run in training samples, so that runs with different batch sizes can be compared.

    Attributes:
        total: samples seen by a run that goes to its end.
        per_step: samples per step of the base config, which converts numbers of steps.
        per_epoch: samples per pass over the data; 0 when unknown.
    """

    total: int
    per_step: int = 1
    per_epoch: int = 0

    def samples_of(self, length: int | float) -> int:
        """Convert a number of steps (int), or a share of the whole run (float up to 1), into samples; at least 1."""
        samples = length * self.total if isinstance(length, float) else length * self.per_step
        return max(1, math.floor(samples + 0.5))


@dataclass(frozen=True)
class Move:
    """What a free worker does next: train `trial` up to `samples`, or if it is None a new trial of `bracket`."""

    samples: int
    why: str
    trial: Trial | None = None
    bracket: int = 0


class Schedule:
    """Decides which trials are promoted, from consumed results only, so that it decides the same on every machine.

    Args:
        parameters: of the class.
        budget: length of a whole run.
        parallel: most orders in progress at once.
        max_trials: trials of the whole search.
    """

    Parameters = declare.Parameters

    def __init__(self, parameters: Any, *, budget: Budget, parallel: int, max_trials: int) -> None:
        self.parameters = parameters
        self.budget, self.parallel, self.max_trials = budget, parallel, max_trials

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Return what a free worker does next; None to wait for results.

        Args:
            trials: all so far; the schedule may `cull` waiting ones.
            more: whether a new trial can be begun: neither `max_trials` nor the tuner's proposals are used up.
        """
        raise NotImplementedError

    def reason_to_end(self, trial: Trial) -> str:
        """Return why a trial that still waits at the end of the search was not continued."""
        return "the search ended before it was promoted"


class Full(Schedule):
    """Every trial runs to its end; none is stopped early."""

    class Parameters(declare.Parameters):
        """No keys."""

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Begin the next trial."""
        return Move(self.budget.total, "to the end") if more else None


def share_conflicts(key: str, value: float | None) -> list[tuple[str, str]]:
    """Return the fault of a share above 1, as [(key, problem)]; [] for a valid share or a number of steps."""
    if isinstance(value, float) and value > 1:
        return [(key, f"is {value}. Use a whole number of steps, or a share of the run of at most 1.0.")]
    return []
