"""Hyperparameter search on surfaces modelled on published ones: samples needed to reach random search's best score.

The measure is the number of training samples spent, over all workers, until an evaluation is at least as good as the
best one of random search with 64 full runs. A method whose 64 trials do not reach it continues with 64 more, and so on,
until it has spent as much as random search.

A `Problem` is a space with learning curves. `tuning_real` makes the same comparison with real ones.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import Row
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Space, Values
from xdpx.search.trials import Order, Result

TRIALS = 64
WORKERS = 1
"""One, so that the result is the number of samples: with several workers, it also depends on what the others train."""
SEEDS = range(60)
SLOW_SEEDS = range(20)
EPOCHS = 81
SAMPLES_PER_EPOCH = 1000


@dataclass(frozen=True)
class Problem:
    """A search problem.

    Attributes:
        space: of the parameters.
        curve: returns the score after each of the first `n` epochs; deterministic in the values.
        epochs: of a complete run.
        samples_per_epoch: training samples per epoch.
    """

    space: Space
    curve: Callable[[Values, int], Sequence[float]]
    epochs: int = EPOCHS
    samples_per_epoch: int = SAMPLES_PER_EPOCH

    @property
    def budget(self) -> Budget:
        """The length of a complete run."""
        return Budget(self.epochs * self.samples_per_epoch, self.samples_per_epoch, self.samples_per_epoch)


# ---- the surface


SPACE = {
    "learning_rate": {"type": "float", "values": [1e-5, 1e-1], "log": True},
    "width": {"type": "int", "values": [32, 1024], "log": True},
    "dropout": {"type": "float", "values": [0.0, 0.6]},
    "weight_decay": {"type": "float", "values": [1e-6, 1e-1], "log": True},
    "schedule": {"type": "categorical", "values": ["constant", "linear", "cosine"]},
}


@dataclass(frozen=True)
class Surface:
    """Learning curves as in LCBench: accuracy(t) = asymptote - gap · (1 + t / tau)^-alpha, with noise.

    The best learning rate falls with the width. A learning rate above it, a small width and little dropout learn fast
    and end low, so curves cross. Beyond ten times the best learning rate training diverges. `seed` draws a task: where
    the optimum is, how fast it is learnt and how much curves cross. The rank correlation of the score after one epoch
    with the last is 0.88 over random points and 0.44 within their best fifth, which makes "one epoch, then the best k"
    as good as published work finds it. With `slow`, curves rise until the end and cross far more (0.7 and 0.25): there
    one epoch says little.
    """

    seed: int
    slow: bool = False

    @functools.cached_property
    def task(self) -> dict[str, float]:
        """The parameters of the task."""
        rng = random.Random(f"task {self.seed}")
        return {
            "top": rng.uniform(0.80, 0.97),
            "learning_rate": rng.uniform(-3.3, -2.3),
            "width": rng.uniform(7.0, 9.5),
            "dropout": rng.uniform(0.1, 0.4),
            "weight_decay": rng.uniform(-4.5, -2.5),
            "crossing": rng.uniform(0.3, 1.0) if self.slow else rng.uniform(0.2, 0.6),
            "tau": rng.uniform(1.0, 6.0) if self.slow else rng.uniform(0.05, 0.8),
            "alpha": rng.uniform(0.7, 1.3) if self.slow else rng.uniform(0.6, 1.2),
            "linear": rng.uniform(0.0, 0.01),
            "constant": rng.uniform(0.005, 0.03),
        }

    def curve(self, values: Values, epochs: int) -> list[float]:
        """Return the accuracy after each of the first `epochs` epochs."""
        return list(self._whole(tuple(sorted(values.items())))[:epochs])

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - surfaces live as long as the program
    def _whole(self, items: tuple[tuple[str, Any], ...]) -> tuple[float, ...]:
        values, task = dict(items), self.task
        noise = random.Random(f"noise {self.seed} {items}")
        width = math.log2(values["width"])
        off = math.log10(values["learning_rate"]) - task["learning_rate"] + 0.15 * (width - task["width"])
        dropout = values["dropout"] - task["dropout"]
        loss = 0.045 * off**2 + 0.012 * (width - task["width"]) ** 2 + 0.25 * dropout**2
        loss += 0.006 * (math.log10(values["weight_decay"]) - task["weight_decay"]) ** 2
        loss += task.get(values["schedule"], 0.0) + abs(noise.gauss(0, 0.003))
        if off > 1.0:
            loss += 0.4 * min(1.0, 2 * (off - 1.0))
        asymptote = max(task["top"] - loss, 0.1)
        slow = -0.5 * off + 0.25 * (width - task["width"]) + 2.0 * dropout
        slow += {"constant": -0.3, "linear": 0.0, "cosine": 0.2}[values["schedule"]]
        tau = task["tau"] * math.exp(task["crossing"] * max(min(slow, 3.0), -3.0))
        gap = asymptote - 0.1
        return tuple(
            asymptote - gap * (1 + epoch / tau) ** -task["alpha"] + noise.gauss(0, 0.003)
            for epoch in range(1, EPOCHS + 1)
        )


def synthetic(seed: int, *, slow: bool = False) -> Problem:
    """Return the problem with a seed."""
    return Problem(Space.read(SPACE), Surface(seed, slow).curve)


# ---- training spent


@dataclass
class Spending:
    """Stretches of training, ordered by the number of samples: their starts, and the score at each point."""

    stretches: list[tuple[int, int, list[tuple[int, float]]]] = field(default_factory=list)
    """(start, samples, [(samples into it, score)])"""

    def add(self, start: int, samples: int, points: list[tuple[int, float]]) -> None:
        """Record a stretch of training by one worker."""
        self.stretches.append((start, samples, points))

    @property
    def total(self) -> int:
        """The total number of training samples."""
        return sum(samples for _, samples, _ in self.stretches)

    @property
    def best(self) -> float:
        """The best score."""
        return max(score for _, _, points in self.stretches for _, score in points)

    def until(self, target: float) -> int | None:
        """Return the samples trained by all workers when a score first reached the target; None if none did."""
        times = [start + into for start, _, points in self.stretches for into, score in points if score >= target]
        if not times:
            return None
        end = min(times)
        return sum(min(samples, max(0, end - start)) for start, samples, _ in self.stretches)


def simulated(problem: Problem, search: Search, *, restart: bool = False, workers: int = WORKERS) -> Spending:
    """Run a search with workers of equal speed; with `restart`, promoted trials are trained again from the start."""
    spending, clock, under_way = Spending(), 0, list[tuple[int, int, Order]]()
    begun = set[int]()
    while not search.finished:
        for order in search.ready():
            if order.number not in begun and len(under_way) < workers:
                begun.add(order.number)
                start = 0 if restart else order.begin
                heapq.heappush(under_way, (clock + order.samples - start, order.number, order))
                spending.add(clock, order.samples - start, _points(problem, order.values, start, order.samples))
        clock, _, order = heapq.heappop(under_way)
        points = _points(problem, order.values, order.begin, order.samples)
        history = [(order.begin + into, score) for into, score in points]
        search.tell(
            Result(
                order.number, order.samples, problem.curve(order.values, _epochs(problem, order.samples))[-1], history
            )
        )
    return spending


def _epochs(problem: Problem, samples: int) -> int:
    return max(1, samples // problem.samples_per_epoch)


def _points(problem: Problem, values: Values, begin: int, end: int) -> list[tuple[int, float]]:
    """Return (samples after `begin`, score) of each evaluation in a stretch; one at its end if it is short."""
    size = problem.samples_per_epoch
    curve = problem.curve(values, _epochs(problem, end))
    return [(epoch * size - begin, curve[epoch - 1]) for epoch in range(begin // size + 1, end // size + 1)]


# ---- the methods


Method = Callable[[Problem, int], Iterator[Spending]]
"""Yields the training spent by each further 64 trials."""


def ours(schedule: str, tuner: str = "random", *, restart: bool = False, **options: Any) -> Method:
    """Return a search method of xdpx."""

    def sweeps(problem: Problem, seed: int) -> Iterator[Spending]:
        for sweep in range(TRIALS):
            settings = {"parallel": WORKERS, "seed": 1000 * sweep + seed, **options}
            search = make_search(
                problem.space, budget=problem.budget, max_trials=TRIALS, schedule=schedule, tuner=tuner, **settings
            )
            yield simulated(problem, search, restart=restart, workers=options.get("parallel", WORKERS))

    return sweeps


def optuna_study(sampler: str, pruner: str) -> Method:
    """Return Optuna as in its documentation: each epoch is reported, and a trial ends if the pruner says so."""

    def sweeps(problem: Problem, seed: int) -> Iterator[Spending]:
        import optuna

        from xdpx.search.models import distribution_of, value_of

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samplers = {
                "tpe": optuna.samplers.TPESampler(seed=seed, multivariate=True),
                "random": optuna.samplers.RandomSampler(seed=seed),
            }
            pruners = {
                "hyperband": optuna.pruners.HyperbandPruner(1, problem.epochs, 3),
                "halving": optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4),
            }
            study = optuna.create_study(
                study_name=str(seed),  # Hyperband divides trials by a hash of it; by itself it is new in every run
                direction="maximize",
                sampler=samplers[sampler],
                pruner=pruners[pruner],
            )
        clock = 0
        while True:
            spending = Spending()
            for _ in range(TRIALS):
                trial = study.ask()
                values = {
                    one.name: value_of(one, trial._suggest(one.name, distribution_of(one)))
                    for one in problem.space.dimensions
                }
                epoch, pruned, curve = 0, False, problem.curve(values, problem.epochs)
                while epoch < problem.epochs and not pruned:
                    epoch += 1
                    trial.report(curve[epoch - 1], epoch)
                    pruned = trial.should_prune()
                study.tell(
                    trial,
                    None if pruned else curve[epoch - 1],
                    state=optuna.trial.TrialState.PRUNED if pruned else None,
                )
                size = problem.samples_per_epoch
                spending.add(clock, epoch * size, [(at * size, curve[at - 1]) for at in range(1, epoch + 1)])
                clock += epoch * size
            yield spending

    return sweeps


def ray_asha(factor: int) -> Method:
    """Return Ray Tune's ASHA: its own scheduler decides after each epoch of each worker."""
    return functools.partial(_ray_asha, factor=factor)


def _ray_asha(problem: Problem, seed: int, *, factor: int) -> Iterator[Spending]:
    from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

    from xdpx.search.tuners import Random

    @dataclass
    class Attempt:
        trial_id: str

    for sweep in range(TRIALS):
        scheduler = AsyncHyperBandScheduler(
            metric="score", mode="max", max_t=problem.epochs, grace_period=1, reduction_factor=factor
        )
        draws = Random(Random.Parameters(), space=problem.space, seed=1000 * sweep + seed)
        spending, size, clock, begun = Spending(), problem.samples_per_epoch, 0, 0
        workers: list[tuple[Attempt, Sequence[float], int, int]] = []
        while begun < TRIALS or workers:
            while len(workers) < WORKERS and begun < TRIALS:
                values = draws.propose(begun, ()) or {}
                workers.append((Attempt(str(begun)), problem.curve(values, problem.epochs), 0, clock))
                scheduler.on_trial_add(None, workers[-1][0])
                begun += 1
            clock += size
            going = []
            for attempt, curve, epoch, start in workers:
                told = {"training_iteration": epoch + 1, "score": curve[epoch]}
                if scheduler.on_trial_result(None, attempt, told) == TrialScheduler.STOP:
                    spending.add(start, (epoch + 1) * size, [(at * size, curve[at - 1]) for at in range(1, epoch + 2)])
                else:
                    going.append((attempt, curve, epoch + 1, start))
            workers = going
        yield spending


RANDOM, DEFAULT, ONE_EPOCH = "random, full runs", "asha (eta 3), the default", "one_epoch, best 3"
RESTARTED = "asha (eta 3), restarted"
DOCUMENTED: dict[str, Any] = {"assess_start_step": 0.04, "assess_interval": 0.04, "cull_keep_ratio": 0.6, "min_ref": 1}

METHODS: dict[str, Method] = {
    RANDOM: ours("full"),
    ONE_EPOCH: ours("one_epoch"),
    "bracket": ours("bracket", parallel=16, **DOCUMENTED),
    "hyperband": ours("hyperband"),
    DEFAULT: ours("asha", assess_start_step=1),
    RESTARTED: ours("asha", assess_start_step=1, restart=True),
    "asha (eta 3), four workers": ours("asha", assess_start_step=1, parallel=4),
    "asha (eta 3) + tpe": ours("asha", "tpe", assess_start_step=1),
    "asha (eta 4)": ours("asha", eta=4, assess_start_step=1),
    "Optuna: TPE + HyperbandPruner": optuna_study("tpe", "hyperband"),
    "Optuna: TPE + SuccessiveHalvingPruner": optuna_study("tpe", "halving"),
    "Optuna: random + SuccessiveHalvingPruner": optuna_study("random", "halving"),
    "Ray: ASHA (reduction factor 4)": ray_asha(4),
    "Ray: ASHA (reduction factor 3)": ray_asha(3),
}


def target_of(problem: Problem, full: Spending) -> float:
    """Return the best final score of the full runs."""
    size = problem.epochs * problem.samples_per_epoch
    return max(points[-1][1] for _, samples, points in full.stretches if samples == size)


def samples_to(target: float, limit: int, sweeps: Iterable[Spending]) -> tuple[int, bool]:
    """Return the samples spent to reach the target, at most `limit`, and whether the first sweep reached it."""
    spent = 0
    for number, spending in enumerate(sweeps):
        reached = spending.until(target)
        if reached is not None:
            return min(limit, spent + reached), number == 0
        spent += spending.total
        if spent >= limit:
            break
    return limit, False


@dataclass
class Table:
    """The training that each method spent to reach the target, in complete runs, by seed."""

    spent: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)

    def ratio(self, name: str, other: str) -> float:
        """Return what `name` spent divided by what `other` spent, over the seeds that both have."""
        both = min(len(self.spent[name]), len(self.spent[other]))
        return sum(self.spent[name][:both]) / sum(self.spent[other][:both])


def is_modelled(name: str) -> bool:
    """Return whether a method uses TPE, which takes seconds per search."""
    return "tpe" in name.lower()


def compare(problems: Sequence[tuple[Problem, int]], methods: dict[str, Method], *, modelled: int = 5) -> Table:
    """Run every method on every (problem, seed); methods with a model only on the first few."""
    table = Table()
    for number, (problem, seed) in enumerate(problems):
        full = next(methods[RANDOM](problem, seed))
        target, whole = target_of(problem, full), problem.budget.total
        for name, method in methods.items():
            if is_modelled(name) and number >= modelled:
                continue
            spent, at_once = samples_to(target, full.total, method(problem, seed))
            table.spent.setdefault(name, []).append(spent / whole)
            table.first[name] = table.first.get(name, 0) + at_once
    return table


def rows_of(table: Table, place: str) -> Iterator[Row]:
    """Yield the promises, then every method compared with random search."""
    seeds = len(table.spent[RANDOM])
    for name, other, most in ((DEFAULT, RANDOM, 0.10), (DEFAULT, ONE_EPOCH, 1.0), (DEFAULT, RESTARTED, 0.75)):
        ratio = table.ratio(name, other)
        yield Row(
            f"{name}, over {other}, {place}, {seeds} seeds", f"{ratio:.3f}x the samples", f"<= {most}x", ratio <= most
        )
    peers = [name for name in table.spent if name.startswith(("Optuna", "Ray"))]
    best = max(peers, key=lambda name: table.ratio(DEFAULT, name))
    ratio = table.ratio(DEFAULT, best)
    yield Row(f"{DEFAULT}, over the best peer, {best}, {place}", f"{ratio:.3f}x the samples", "<= 1.0x", ratio <= 1.0)
    yield from shown_beside(table, place)


def shown_beside(table: Table, place: str) -> Iterator[Row]:
    """Yield what each method spent, as rows without a promise."""
    for name, spent in table.spent.items():
        what = f"{name}, {place}: with its first {TRIALS} trials in {table.first[name]} of {len(spent)} seeds"
        told = f"{statistics.mean(spent):.2f} whole runs, {table.ratio(name, RANDOM):.3f}x random's"
        yield Row(what, told, "shown beside", kept=True)


def measure() -> Iterator[Row]:
    """Compare all methods on surfaces that saturate early, as published ones do, and cheap methods on slow ones."""
    yield from rows_of(compare([(synthetic(seed), seed) for seed in SEEDS], METHODS), "early surfaces")
    cheap = {name: method for name, method in METHODS.items() if not is_modelled(name)}
    slow = compare([(synthetic(seed, slow=True), seed) for seed in SLOW_SEEDS], cheap)
    yield from shown_beside(slow, "slow surfaces")
