"""One number per trial, comparable between trials that were trained for different lengths."""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.search.trials import Trial, ranked


def standings(trials: Sequence[Trial]) -> dict[int, float]:
    """Return the estimated quantile of each trial among all, in (0, 1), greater is better; failed ones have 0.

    A trial is ranked among those that were trained at least as far as it was. Where n trials have seen the first length
    and m of them this one, those m count as the best m of n: rank r of m stands at 1 - (r - 1/2) / n. So scores are
    compared at equal samples only, and a new trial that leads at the first length stands above one that went further
    and then fell behind.

    Returns:
        {trial number: quantile}, without the trials that have no score yet.
    """
    scored = [trial for trial in trials if trial.history]
    found = {trial.number: 0.0 for trial in trials if trial.state == "failed"}
    for trial in scored:
        if trial.number not in found:
            at = trial.samples
            there = ranked([other for other in scored if other.samples >= at or other.ended], at, at // 2)
            rank = next(place for place, other in enumerate(there) if other is trial)
            found[trial.number] = 1 - (rank + 0.5) / len(scored)
    return found
