"""Schedules of successive halving: Hyperband (in brackets), ASHA (without waiting), and one epoch (one rung).

A rung is a number of samples at which trials are compared; the best 1/eta of a rung train on to the next, which is
eta times as far.
"""

from __future__ import annotations

import math
from typing import Any

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.search.schedules import Budget, Move, Schedule, share_conflicts
from xdpx.search.trials import Trial, Trials, ranked

GROUP = "tune"


class RungParameters(declare.Parameters):
    """Keys of schedules with rungs, at which trials are compared."""

    eta: int | float = param(3, gt=1, group=GROUP, doc="One in eta trials goes on to a rung eta times as far.")
    assess_start_step: int | float | None = param(
        None, gt=0, group=GROUP,
        doc="The first rung: steps (int) or share (float) of a whole run; null: about 1/80, a power of eta below it, "
        "at least one update.",
    )  # fmt: skip

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a share above 1."""
        return share_conflicts("assess_start_step", self.assess_start_step)


def rungs_between(first: int, total: int, eta: float) -> list[int]:
    """Return the rungs in samples, each once: first, first·eta, first·eta², … and the total.

    The last rung before the total is left out if the total is less than sqrt(eta) times that rung: it is too close.
    With a small eta, several of the first would be the same number of samples.
    """
    rungs = [float(first)]
    while rungs[-1] * eta < total:
        rungs.append(rungs[-1] * eta)
    if len(rungs) > 1 and rungs[-1] * math.sqrt(eta) > total:
        rungs.pop()
    return list(dict.fromkeys([*(math.floor(rung + 0.5) for rung in rungs), total]))


class Halving(Schedule):
    """Base class of schedules with rungs. `rungs` are in samples, ascending; the last is the whole run."""

    Parameters = RungParameters

    def __init__(self, parameters: Any, *, budget: Budget, parallel: int, max_trials: int) -> None:
        super().__init__(parameters, budget=budget, parallel=parallel, max_trials=max_trials)
        self.eta = float(parameters.eta)
        start = parameters.assess_start_step
        first = budget.samples_of(start) if start is not None else self._usual_first()
        if first >= budget.total:
            raise refusal(
                "assess_start_step", f"is {first} samples, but a whole run has {budget.total}.", "Assess earlier."
            )
        self.rungs = rungs_between(first, budget.total, self.eta)

    def _usual_first(self) -> int:
        """Return the whole run divided by the power of eta nearest to 81: five rungs with eta 3, four with 4.

        At least one update of the base config, or half of the run if that is less: a trial cannot be evaluated earlier.
        """
        total, power = self.budget.total, max(1, round(math.log(81) / math.log(self.eta)))
        return max(1, min(self.budget.per_step, total // 2), math.floor(total / self.eta**power + 0.5))

    def reached(self, trials: list[Trial], rung: int) -> list[Trial]:
        """Return the trials that were trained up to a rung, or failed on the way, best first."""
        at = self.rungs[rung]
        # One that failed or ended by itself counts as at its aim.
        there = [one for one in trials if one.samples >= at or (one.state in {"failed", "finished"} and one.aim >= at)]
        return ranked(there, at, at // 2)


class AshaParameters(RungParameters):
    """Keys of `asha`: the rungs, and the number of trials trained to the end."""

    keep_best: int = param(
        3, ge=1, group=GROUP, doc="Trials that run to the end, one after another, where the rungs promote fewer."
    )


class Asha(Halving):
    """Asynchronous successive halving: a trial is promoted as soon as it is in the best 1/eta of its rung.

    Source: Li et al., MLSys 2020, algorithm 2; in addition, once no trial can begin, the best run to the end.
    """

    Parameters = AshaParameters

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Promote the best promotable trial of the highest rung; if there is none, begin a new trial."""
        for rung in reversed(range(len(self.rungs) - 1)):
            members = self.reached(trials, rung)
            best = members[: int(len(members) / self.eta)]
            for rank, trial in enumerate(best, start=1):
                if trial.state == "waiting" and trial.samples < self.rungs[rung + 1]:
                    why = f"rank {rank} of {len(members)} at {self.rungs[rung]} samples"
                    return Move(self.rungs[rung + 1], why, trial)
        if more:
            return Move(self.rungs[0], "grows the first rung")
        return self._last(trials)

    def _last(self, trials: Trials) -> Move | None:
        """Run the best to the end when no rung promotes any more: a small search does not fill the last rung.

        One after another, so that a user may stop the search when the first is good enough.
        """
        if any(trial.state == "running" for trial in trials):
            return None
        waiting = [trial for trial in trials if trial.state == "waiting"]
        there = sum(trial.state == "finished" for trial in trials)
        if there >= self.parameters.keep_best or not waiting:
            return None
        # by rungs, not samples: with a large batch a trial overshoots its rung, which makes it no better
        best = max(waiting, key=lambda one: (sum(one.samples >= at for at in self.rungs), one.merit, -one.number))
        return Move(self.budget.total, "the best of the highest rung", best)

    def reason_to_end(self, trial: Trial) -> str:
        """Return the rung that the trial was not promoted from, as text."""
        return f"not in the best 1/{self.parameters.eta} at {trial.aim} samples"


class Hyperband(Halving):
    """Brackets of successive halving that begin at different rungs: stopping is aggressive in some, absent in one.

    Bracket s (s_max, …, 0) begins n_s = ceil((s_max + 1) / (s + 1) · eta^s) trials at rung R / eta^s. `max_trials` is
    divided among the brackets in this proportion: if it equals the sum of all n_s, this is the algorithm of the paper;
    with a multiple of it the sweep is repeated. While a bracket waits for a round to end, the next one is begun.

    Source: Li et al., JMLR 2018, algorithm 1.
    """

    def __init__(self, parameters: Any, *, budget: Budget, parallel: int, max_trials: int) -> None:
        super().__init__(parameters, budget=budget, parallel=parallel, max_trials=max_trials)
        self.sizes = bracket_sizes(len(self.rungs) - 1, self.eta, max_trials)

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Return the next move of the earliest bracket that has one."""
        for bracket, size in enumerate(self.sizes):
            members = [trial for trial in trials if trial.bracket == bracket]
            begun = len(members) == size or not more
            move = self._promotion(members, bracket, trials) if begun else None
            if move is not None:
                return move
            if not begun:
                return Move(self.rungs[self._first(bracket)], f"bracket {bracket}", bracket=bracket)
        return None

    def _first(self, bracket: int) -> int:
        """Return the index of the rung at which a bracket begins."""
        return bracket % len(self.rungs)

    def _promotion(self, members: list[Trial], bracket: int, trials: Trials) -> Move | None:
        """Return the next promotion in a bracket whose trials have all begun; None during a round, or at the end."""
        alive = [trial for trial in members if trial.state == "waiting"]
        if not alive:
            return None
        promoted = [trial for trial in alive if trial.samples < trial.aim]
        if not promoted:
            if any(trial.state == "running" for trial in members):
                return None
            promoted = self._end_round(alive, members, bracket, trials)
        trial = min(promoted, key=lambda one: one.number)
        return Move(trial.aim, f"bracket {bracket}", trial)

    def _end_round(self, alive: list[Trial], members: list[Trial], bracket: int, trials: Trials) -> list[Trial]:
        """Cull all but the best 1/eta of a rung, and return the trials that are kept."""
        rung = self.rungs.index(alive[0].aim)
        order = self.reached(members, rung)
        keep = max(1, math.floor(len(members) / self.eta ** (rung + 1 - self._first(bracket)) + 1e-9))
        kept = [trial for trial in order if trial in alive][:keep]
        for rank, trial in enumerate(order, start=1):
            if trial in kept:
                trial.aim = self.rungs[rung + 1]
            elif trial in alive:
                trials.cull(trial, f"rank {rank} of {len(order)} at {self.rungs[rung]} samples in bracket {bracket}")
        return kept


def bracket_sizes(s_max: int, eta: float, max_trials: int) -> list[int]:
    """Return the number of trials of each bracket, most aggressive first, repeated for each sweep.

    The sizes of the paper are scaled so that they add up to `max_trials`: each is rounded down, and the remaining
    trials go to the brackets that lost most by rounding, the earlier of equal ones first.
    """
    sweep = [math.ceil((s_max + 1) / (s + 1) * eta**s - 1e-9) for s in range(s_max, -1, -1)]
    sweeps = max(1, round(max_trials / sum(sweep)))
    exact = [size * max_trials / (sweeps * sum(sweep)) for size in sweep] * sweeps
    sizes = [math.floor(size + 1e-9) for size in exact]
    by_loss = sorted(range(len(exact)), key=lambda index: (sizes[index] - exact[index], index))
    for index in by_loss[: max_trials - sum(sizes)]:
        sizes[index] += 1
    return sizes


class OneEpochParameters(declare.Parameters):
    """Keys of `one_epoch`: the length of the first stage, and how many trials are promoted."""

    assess_start_step: int | float | None = param(
        None,
        gt=0,
        group=GROUP,
        doc="The first assessment: steps (int) or share (float) of a whole run; null: one epoch.",
    )
    keep_best: int = param(3, ge=1, group=GROUP, doc="Trials that run to the end.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a share above the whole."""
        return share_conflicts("assess_start_step", self.assess_start_step)


class OneEpoch(Schedule):
    """Every trial runs for one epoch, then the best few run to the end.

    Source: Egele et al., "Is One Epoch All You Need For Multi-Fidelity Hyperparameter Optimization?", arXiv 2307.15422.
    """

    Parameters = OneEpochParameters

    def __init__(self, parameters: Any, *, budget: Budget, parallel: int, max_trials: int) -> None:
        super().__init__(parameters, budget=budget, parallel=parallel, max_trials=max_trials)
        start = parameters.assess_start_step
        if start is None and not budget.per_epoch:
            problem = "is null, one epoch, but the number of samples in an epoch is unknown."
            raise refusal("assess_start_step", problem, "Give the steps, or the share of a run.")
        self.first = budget.per_epoch if start is None else budget.samples_of(start)
        if self.first >= budget.total:
            problem = f"is {self.first} samples, but a whole run has {budget.total}."
            raise refusal("assess_start_step", problem, "Assess earlier, or train for longer.")

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Begin all trials, wait for their first look, then run the best to the end."""
        if more:
            return Move(self.first, "first look")
        if any(trial.state == "running" and trial.aim == self.first for trial in trials):
            return None
        order = ranked(trials, self.first, self.first // 2)
        for rank, trial in enumerate(order, start=1):
            if trial.state == "waiting" and rank <= self.parameters.keep_best:
                return Move(self.budget.total, f"rank {rank} of {len(order)} at {self.first} samples", trial)
        return None

    def reason_to_end(self, trial: Trial) -> str:
        """Return that the trial was not among the best at the first look, as text."""
        return f"not in the best {self.parameters.keep_best} at {self.first} samples"
