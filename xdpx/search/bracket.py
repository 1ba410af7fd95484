"""The bracket schedule: assessments at equal intervals, each of which keeps a share of the trials of a bracket."""

from __future__ import annotations

import math
from typing import Any

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.search.schedules import Budget, Move, Schedule, share_conflicts
from xdpx.search.trials import Trial, Trials, ranked

GROUP = "tune"


class BracketParameters(declare.Parameters):
    """Keys of `bracket`: when trials are compared, and how many are promoted."""

    assess_start_step: int | float = param(
        0, ge=0, group=GROUP,
        doc="Steps (int) or share (float) of a whole run before the first assessment; 0: after one assess_interval.",
    )  # fmt: skip
    assess_interval: int | float = param(
        0.1, gt=0, group=GROUP, doc="Steps (int) or share (float) of a whole run between assessments."
    )
    min_ref: int = param(1, ge=1, group=GROUP, doc="Trials that run to the end, however many are culled.")
    cull_keep_ratio: float = param(0.5, gt=0, lt=1, group=GROUP, doc="Share of the trials that each assessment keeps.")
    eval_deviation: int | None = param(
        None, ge=0, group=GROUP,
        doc="Samples by which evaluations of two trials may differ to be compared; null: half an assess_interval, or "
        "what the last update of a large batch overshoots.",
    )  # fmt: skip

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse shares above 1."""
        return [
            *share_conflicts("assess_start_step", self.assess_start_step),
            *share_conflicts("assess_interval", self.assess_interval),
        ]


class Bracket(Schedule):
    """Trials in brackets of `parallel_runs`; each assessment keeps a share, and `min_ref` run to the end.

    A trial is compared with every trial of the search that was evaluated at the same number of samples, including
    those of earlier brackets and culled ones.
    """

    Parameters = BracketParameters

    def __init__(self, parameters: Any, *, budget: Budget, parallel: int, max_trials: int) -> None:
        super().__init__(parameters, budget=budget, parallel=parallel, max_trials=max_trials)
        settings: BracketParameters = parameters
        self.interval = budget.samples_of(settings.assess_interval)
        self.first = budget.samples_of(settings.assess_start_step) if settings.assess_start_step else self.interval
        half = self.interval // 2
        self.deviation = half if settings.eval_deviation is None else settings.eval_deviation
        self._bracket = 0
        if self.first >= budget.total:
            key = "assess_start_step" if settings.assess_start_step else "assess_interval"
            raise refusal(key, f"is {self.first} samples, but a whole run has {budget.total}.", "Assess earlier.")
        if min(parallel, max_trials) <= settings.min_ref:
            problem = (
                f"is {settings.min_ref}, and a bracket has {min(parallel, max_trials)} trials: none would be culled."
            )
            raise refusal(
                "min_ref", problem, "Raise parallel_runs and max_trials, lower min_ref, or use schedule: full."
            )

    def next(self, trials: Trials, *, more: bool) -> Move | None:
        """Fill the bracket, wait for its trials, and assess them; if none can be promoted, begin the next bracket."""
        members = [trial for trial in trials if trial.bracket == self._bracket]
        if more and len(members) < self.parallel:
            return Move(self.first, f"bracket {self._bracket}", bracket=self._bracket)
        ready = [trial for trial in members if trial.state == "waiting"]
        promoted = [trial for trial in ready if trial.samples < trial.aim]
        if promoted:  # kept by an assessment, but not yet ordered further
            aim = promoted[0].aim
            why = "to the end" if aim >= self.budget.total else "kept by the assessment"
            return Move(aim, why, promoted[0])
        if any(trial.state == "running" for trial in members):
            return None
        if ready:
            self._assess(ready, trials)
            return self.next(trials, more=more)
        if not more:
            return None
        self._bracket += 1
        return self.next(trials, more=more)

    def _assess(self, ready: list[Trial], trials: Trials) -> None:
        """Rank waiting trials among all evaluated at the same number of samples; cull some, raise the aim of others."""
        at = max(trial.aim for trial in ready)
        strict = self.parameters.eval_deviation is not None
        there = [trial for trial in trials if trial.best_at(at, self.deviation, strict=strict) is not None]
        peers = ranked(there, at, self.deviation, strict=strict)
        least = self.parameters.min_ref
        passing = max(least, min(math.ceil(len(peers) * self.parameters.cull_keep_ratio), len(peers) - 1))
        ranks = {trial.number: rank for rank, trial in enumerate(peers, start=1)}
        for trial in ready:
            rank = ranks.get(trial.number, len(peers) + 1)
            if rank > passing:
                trials.cull(trial, f"rank {rank} of {len(peers)} at {at} samples; {passing} go on")
        kept = [trial for trial in ready if trial.state == "waiting"]
        further = at + self.interval
        aim = self.budget.total if len(kept) <= least or further >= self.budget.total else further
        for trial in kept:
            trial.aim = aim
