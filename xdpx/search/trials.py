"""The records of a search: orders, results, trials, and the decisions about each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from xdpx.config.faults import refusal
from xdpx.search.spaces import Values

State = Literal["running", "waiting", "culled", "finished", "failed"]
"""waiting: its order is done, and it may be promoted; finished: it has seen all samples, or ended by itself."""

Verdict = Literal["begun", "promoted", "culled", "finished", "failed"]
Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True)
class Order:
    """An order to train one trial until it has seen `samples` samples, then evaluate it.

    Attributes:
        number: 0, 1, 2, … in the order in which they were issued.
        trial: number of the trial, from 0.
        values: its point of the search space.
        samples: training samples seen at the end, counted from the beginning of the trial.
        begin: samples it has already seen: 0 for a new trial, otherwise it is resumed.
    """

    number: int
    trial: int
    values: Values
    samples: int
    begin: int = 0


@dataclass(frozen=True)
class Result:
    """The result of an order.

    Attributes:
        order: number of the order.
        samples: training samples that the trial has seen since its beginning.
        score: of the last evaluation; None if the trial failed.
        history: (samples, score) of each evaluation within this order, oldest first; may be empty.
        ended: the run ended by itself (early stopping, its own limits) and has nothing left to train.
        note: why the trial failed or ended, for the table of decisions.
    """

    order: int
    samples: int
    score: float | None
    history: Sequence[tuple[int, float]] = ()
    ended: bool = False
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """One row of the table of decisions."""

    number: int
    trial: int
    verdict: Verdict
    samples: int
    score: float | None
    why: str


@dataclass
class Trial:
    """One point of the space and its results so far.

    Attributes:
        number: from 0, in the order in which trials were begun.
        values: its point of the search space.
        sign: 1 when a greater score is better, -1 when a smaller one is.
        bracket: the bracket it belongs to, for schedules that have several.
        samples: training samples seen, according to the consumed results.
        aim: training samples to reach: those of its last order, or of the next one after a promotion.
        history: (samples, score) of each evaluation, oldest first.
        reached: {samples to reach: samples then seen} of each consumed order; whole updates may overshoot.
        ended: the run ended by itself.
    """

    number: int
    values: Values
    sign: int = 1
    bracket: int = 0
    samples: int = 0
    aim: int = 0
    state: State = "running"
    history: list[tuple[int, float]] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    ended: bool = False

    @property
    def best(self) -> float | None:
        """The best score so far, whose checkpoint the run keeps; None before the first."""
        return max((score for _, score in self.history), key=lambda score: self.sign * score, default=None)

    def best_at(self, samples: int, deviation: int = 0, *, strict: bool = False) -> float | None:
        """Return the best score up to and including the evaluation nearest to `samples`.

        Args:
            samples: number of training samples.
            deviation: allowed difference from it.
            strict: do not look at the end of the order to `samples` instead; a trial stops after whole updates, and
                with a large batch that may be further from `samples` than any deviation.

        Returns:
            None if no evaluation is that near, or the trial failed: as it cannot be promoted, it must not take the
            place of one that can. A run that ended by itself earlier keeps its last score.
        """
        if not self.history or self.state == "failed":
            return None
        samples = samples if strict else self.reached.get(samples, samples)
        nearest = min((seen for seen, _ in self.history), key=lambda seen: (abs(seen - samples), seen))
        if abs(nearest - samples) > deviation and not (self.ended and nearest < samples):
            return None
        return max((score for seen, score in self.history if seen <= nearest), key=lambda score: self.sign * score)

    def merit_at(self, samples: int, deviation: int = 0, *, strict: bool = False) -> float:
        """Return `best_at` with the sign changed if needed so that greater is better; -inf if it is None."""
        score = self.best_at(samples, deviation, strict=strict)
        return -math.inf if score is None else self.sign * score

    @property
    def merit(self) -> float:
        """`best` with the sign changed if needed so that greater is better; -inf if it is None."""
        return -math.inf if self.best is None else self.sign * self.best

    @property
    def place(self) -> tuple[bool, float, int]:
        """Sort key for a table, best first: failed trials last, and of equal ones the earlier first."""
        return self.state == "failed", -self.merit, self.number


class Trials(list[Trial]):
    """The trials of a search in order of their numbers, and the table of decisions about them."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []

    def note(self, trial: Trial, verdict: Verdict, why: str) -> None:
        """Add a row to the table of decisions."""
        row = Decision(len(self.decisions), trial.number, verdict, trial.samples, trial.best, why)
        self.decisions.append(row)

    def cull(self, trial: Trial, why: str) -> None:
        """Stop a waiting trial for good. Raises ConfigError for any other: a running one would not stop."""
        if trial.state != "waiting":
            problem = f"culls trial {trial.number}, which is {trial.state} and not waiting."
            raise refusal("schedule", problem, "Cull trials whose state is 'waiting'.")
        trial.state = "culled"
        self.note(trial, "culled", why)

    def best(self) -> Trial | None:
        """Return the trial with the best score, the earlier of equal ones; None if no trial has a score.

        A failed trial is returned only if no other has a score: training with its values does not reach the end.
        """
        return min((trial for trial in self if trial.best is not None), key=lambda trial: trial.place, default=None)


def ranked(trials: Sequence[Trial], samples: int, deviation: int = 0, *, strict: bool = False) -> list[Trial]:
    """Return trials sorted by their score at `samples`, best first; of equal ones the earlier first."""
    return sorted(trials, key=lambda trial: (-trial.merit_at(samples, deviation, strict=strict), trial.number))


def standings(trials: Sequence[Trial]) -> dict[int, float]:
    """Return the estimated quantile of each trial among all, in (0, 1), greater is better; failed ones have 0.

    A trial is ranked among those that were trained at least as far as itself. If n trials have a score, and m of them
    were trained this far, those m count as the best m of n: rank r of m gives the quantile 1 - (r - 1/2) / n. So scores
    are compared only at equal samples, and a new trial that leads after a short run ranks above one that went further
    and then fell behind.

    Returns:
        {trial number: quantile}, without the trials that have no score yet.
    """
    scored = [trial for trial in trials if trial.history]
    found = {trial.number: 0.0 for trial in trials if trial.state == "failed"}
    for trial in scored:
        if trial.number not in found:
            at = min(trial.samples, max(trial.reached, default=trial.samples))
            there = ranked([other for other in scored if other.samples >= at or other.ended], at, at // 2)
            rank = next(place for place, other in enumerate(there) if other is trial)
            found[trial.number] = 1 - (rank + 0.5) / len(scored)
    return found
