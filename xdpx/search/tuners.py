"""Tuners, which propose the values of the next trial."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from xdpx.config import parameters as declare
from xdpx.config.parameters import param
from xdpx.config.registry import Registry
from xdpx.search.spaces import Space, Values, same
from xdpx.search.trials import Direction, Trial

tuners: Registry[Any] = Registry(
    "tuner",
    {
        "gp": "xdpx.search.models:GaussianProcess",
        "grid": "xdpx.search.tuners:Grid",
        "random": "xdpx.search.tuners:Random",
        "tpe": "xdpx.search.models:Tpe",
    },
    base="xdpx.search.tuners:Tuner",
    adopts=True,
)
register = tuners.register

GROUP = "tune"
MOST_DRAWS = 1000
"""Draws after which a finite space counts as exhausted: the last free point of 100 is missed once in 23,000 times."""


class Tuner:
    """Proposes points of a space. A proposal depends only on the seed, its number and the history.

    Args:
        parameters: of the class.
        space: where points come from.
        seed: of all random numbers.
        direction: whether scores are maximized or minimized.
    """

    Parameters = declare.Parameters

    def __init__(self, parameters: Any, *, space: Space, seed: int = 1, direction: Direction = "maximize") -> None:
        self.parameters = parameters
        self.space, self.seed, self.direction = space, seed, direction

    def propose(self, number: int, history: Sequence[Trial]) -> Values | None:
        """Return the values of trial `number`; None if every point was already proposed.

        Args:
            number: of the trial, from 0.
            history: trials 0 to number - 1; some may still be running.
        """
        raise NotImplementedError


class Random(Tuner):
    """Independent random points, without repetition."""

    class Parameters(declare.Parameters):
        """No keys."""

    def propose(self, number: int, history: Sequence[Trial]) -> Values | None:
        """Return a random untried point, from a generator seeded by the seed and number; None if none is left."""
        rng = random.Random(f"{self.seed}/{number}")
        for _ in range(MOST_DRAWS):
            values = self.space.sample(rng)
            if not any(same(trial.values, values) for trial in history):
                return values
        return None


class GridParameters(declare.Parameters):
    """Keys of `grid`: the number of values of a float."""

    float_samples: int = param(5, ge=1, doc="Values of each float parameter, both ends included.", group=GROUP)


class Grid(Tuner):
    """Every point of a grid once, in order."""

    Parameters = GridParameters

    def propose(self, number: int, history: Sequence[Trial]) -> Values | None:
        """Return point `number` of the grid; None after the last."""
        points = self.space.grid(self.parameters.float_samples)
        return next(itertools.islice(points, number, None), None)
