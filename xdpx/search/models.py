"""Model-based tuners: Optuna's tree-structured Parzen estimator and Gaussian process.

Every proposal depends only on the history, its number and the seed, so a search that is replayed from its journal
makes the same proposals. Running trials count as occupied points (constant liar), so that parallel workers do not
all try the same point.
"""

from __future__ import annotations

import importlib.util
import random
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdpx.config import parameters as declare
from xdpx.config.faults import ConfigError, refusal
from xdpx.config.parameters import param
from xdpx.search.spaces import Categorical, Dimension, Float, Int, Space, Value, Values, same
from xdpx.search.trials import Direction, Trial, standings
from xdpx.search.tuners import GROUP, Random, Tuner

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


class ModelParameters(declare.Parameters):
    """Keys of tuners with a model: the number of random trials before it is used."""

    startup_trials: int = param(
        10, ge=2, doc="Scored trials before the model proposes; random draws until then.", group=GROUP
    )


class ModelTuner(Tuner):
    """Proposes points with an Optuna sampler, which sees every trial with its standing as the value."""

    Parameters = ModelParameters

    def __init__(self, parameters: Any, *, space: Space, seed: int = 1, direction: Direction = "maximize") -> None:
        super().__init__(parameters, space=space, seed=seed, direction=direction)
        problem = without_optuna("tuner", *self.packages)
        if problem:
            raise problem
        self._random = Random(Random.Parameters(), space=space, seed=seed, direction=direction)

    packages: tuple[str, ...] = ()
    """Packages that it needs beside Optuna."""

    def sampler(self, seed: int) -> BaseSampler:
        """Return the Optuna sampler."""
        raise NotImplementedError

    def propose(self, number: int, history: Sequence[Trial]) -> Values | None:
        """Return a point from the model; a random one until enough trials have a score, or if that point was tried."""
        scored = sum(trial.best is not None for trial in history)
        if scored >= self.parameters.startup_trials:
            values = self._modelled(number, history)
            if not any(same(trial.values, values) for trial in history):
                return values
        return self._random.propose(number, history)

    def _modelled(self, number: int, history: Sequence[Trial]) -> Values:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # it would recommend installing greenlet
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = self.sampler(random.Random(f"{self.seed}/{number}/model").getrandbits(32))
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.add_trials(frozen_trials(self.space, history))
            trial = study.ask()
            values: Values = {}
            for dimension in self.space.dimensions:
                if dimension.holds(values):
                    asked = trial._suggest(dimension.name, distribution_of(dimension))
                    values[dimension.name] = value_of(dimension, asked)
        return values


class Tpe(ModelTuner):
    """Tree-structured Parzen estimator over all parameters together; conditional ones are grouped.

    Source: Bergstra et al., NeurIPS 2011; Watanabe, arXiv 2304.11127, for the multivariate kernel.
    """

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's TPE."""
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, n_startup_trials=1, multivariate=True, group=self.space.is_conditional)


class GaussianProcess(ModelTuner):
    """Gaussian process with logarithmic expected improvement; conditional parameters are drawn at random.

    Source: Ament et al., NeurIPS 2023, for the acquisition; Optuna's GPSampler for the rest.
    """

    packages = ("scipy",)

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's Gaussian process sampler."""
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)


def without_optuna(key: str, *more: str) -> ConfigError | None:
    """Return the error that names a missing package; None if Optuna and `more` are installed."""
    missing = [name for name in ("optuna", *more) if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    problem = f"needs the package {missing[0]}, which is not installed."
    return refusal(key, problem, "Install it: pip install 'xdpx[tune]'.")


# ---- between our space and Optuna's


def distribution_of(dimension: Dimension) -> BaseDistribution:
    """Return the Optuna distribution for a dimension; over indices for categorical and stepped integer ones."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Float):
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    if isinstance(dimension, Int) and dimension.log and dimension.step is None:
        return IntDistribution(dimension.low, dimension.high, log=True)
    if isinstance(dimension, Int):
        return IntDistribution(0, int(dimension.size) - 1)
    return CategoricalDistribution(tuple(range(int(dimension.size))))


def value_of(dimension: Dimension, asked: float) -> Value:
    """Return the value of a dimension for a number that Optuna suggested."""
    if isinstance(dimension, Float):
        return dimension.rounded(asked)
    if isinstance(dimension, Int) and dimension.log and dimension.step is None:
        return int(asked)
    return dimension.grid(1)[int(asked)]


def suggested(dimension: Dimension, value: Value) -> float:
    """Return the number that Optuna would have suggested for a value: the inverse of `value_of`."""
    if isinstance(dimension, Float) or (isinstance(dimension, Int) and dimension.log and dimension.step is None):
        return value  # type: ignore[return-value]
    if isinstance(dimension, Categorical):
        return dimension.index_of(value)
    return dimension.grid(1).index(value)


def frozen_trials(space: Space, history: Sequence[Trial]) -> list[FrozenTrial]:
    """Return the history as Optuna trials, whose value is their standing; trials without one count as running.

    A failed trial has the lowest standing.
    """
    from optuna.trial import TrialState, create_trial

    standing = standings(history)
    made = []
    for trial in history:
        present = [dimension for dimension in space.dimensions if dimension.name in trial.values]
        value = standing.get(trial.number)
        made.append(
            create_trial(
                state=TrialState.RUNNING if value is None else TrialState.COMPLETE,
                value=value,
                params={one.name: suggested(one, trial.values[one.name]) for one in present},
                distributions={one.name: distribution_of(one) for one in present},
            )
        )
    return made
