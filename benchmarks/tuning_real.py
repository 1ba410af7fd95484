"""The comparison of `tuning` on a real space: replayed learning curves of 320 small CNN classifiers of SST-2.

Training is deterministic and promotion exact, so a replayed search costs what a real one would. The curves were
recorded once (`tuning_curves.py`); methods that restart trials are charged for the samples that they train again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import tuning_curves
from benchmarks.report import Row
from benchmarks.tuning import (
    DEFAULT,
    METHODS,
    ONE_EPOCH,
    RANDOM,
    RESTARTED,
    Method,
    Problem,
    compare,
    ours,
    rows_of,
)
from xdpx.search.schedules import Budget
from xdpx.search.spaces import Space, Values

SEEDS = range(20)
"""Seeds of the search."""

ONE_THIRD, WHOLE = 1 / tuning_curves.POINTS, 3 / tuning_curves.POINTS
"""First rungs as shares of a run: a third of an epoch, the first point of a recorded curve; and one epoch."""


@dataclass(frozen=True)
class RealProblem(Problem):
    """The recorded problem. An "epoch" of a curve is one of its points, a third of a pass over the data."""

    @property
    def budget(self) -> Budget:
        """The length of a complete run."""
        return Budget(tuning_curves.TOTAL, tuning_curves.BATCH_SIZE, tuning_curves.ROWS)


def problem() -> RealProblem:
    """Return the recorded space."""
    curves = tuning_curves.read()

    def curve(values: Values, points: int) -> Sequence[float]:
        return curves[tuning_curves.key_of(values)][:points]

    size = tuning_curves.TOTAL // tuning_curves.POINTS
    return RealProblem(Space.read(tuning_curves.SPACE), curve, tuning_curves.POINTS, size)


FITTED: dict[str, Method] = {
    RANDOM: METHODS[RANDOM],
    ONE_EPOCH: METHODS[ONE_EPOCH],
    DEFAULT: ours("asha", assess_start_step=WHOLE),
    RESTARTED: ours("asha", assess_start_step=WHOLE, restart=True),
    "asha (eta 3), first rung a third of an epoch": ours("asha", assess_start_step=ONE_THIRD),
    "asha (eta 3) + tpe": ours("asha", "tpe", assess_start_step=WHOLE),
    "asha (eta 4)": ours("asha", eta=4, assess_start_step=WHOLE),
    "hyperband, first rung a third of an epoch": ours("hyperband", assess_start_step=ONE_THIRD),
    "one_epoch + tpe": ours("one_epoch", "tpe"),
    **{name: method for name, method in METHODS.items() if name.startswith(("Optuna", "Ray"))},
}
"""As on the surfaces, the default starts with one epoch, unless something else is said."""


def measure() -> Iterator[Row]:
    """Compare all methods on the recorded space."""
    real = problem()
    yield from rows_of(compare([(real, seed) for seed in SEEDS], FITTED, modelled=len(SEEDS)), "a real CNN space")
    for name, points in (("a third of an epoch", 1), ("one epoch", 3)):
        share = least_share(list(tuning_curves.read().values()), points)
        what = f"a real CNN space: who trains each of 64 trials for {name}, and then knows which one is best"
        yield Row(what, f"{share:.3f}x random's", "shown beside", True)


def least_share(curves: Sequence[Sequence[float]], points: int, *, trials: int = 64, draws: int = 2000) -> float:
    """Return a lower bound of the samples for a search that selects after `points` points, relative to random search.

    Both train trials one after another until the best of `trials` has been trained up to its best score.
    """
    drawn, ours_all, random_all = random.Random(0), 0, 0
    whole = len(curves[0])
    for _ in range(draws):
        taken = drawn.choices(curves, k=trials)
        best = max(range(trials), key=lambda index: max(taken[index]))
        reached = taken[best].index(max(taken[best])) + 1
        ours_all += (best + 1) * points + max(0, reached - points)
        random_all += best * whole + reached
    return ours_all / random_all
