"""The sampler `episode` for few-shot learning: each episode has N classes, with K support and Q query rows each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.datasets.balanced import rows_by_class, targets_of
from xdpx.datasets.evaluation_data import SAME_EVERY_TIME
from xdpx.datasets.plan import EpochPlan, Measured, Rows
from xdpx.datasets.units import UnitPlan, UnitSampler
from xdpx.logger import log
from xdpx.losses.parameters import EpisodeShape
from xdpx.processors.randomness import key, permute

EPISODE = 4
"""Purpose of a random key, different from those in `plan` and `balanced`."""


@dataclass(frozen=True, eq=False)
class EpisodePlan(UnitPlan):
    """A plan of episodes, each drawn by only (seed, epoch, episode).

    Attributes:
        classes: the rows of each class to choose from.
        n_way: N, number of classes of an episode.
    """

    classes: tuple[Rows, ...] = ()
    n_way: int = 1

    def rows_of(self, unit: int) -> Rows:
        """Return the rows of an episode: the first one of each class, the second one of each, ..., queries last."""
        each = self.unit_size // self.n_way
        chosen = permute(np.arange(self.n_way), len(self.classes), key(self.seed, self.epoch, EPISODE, unit))
        drawn = [self._some(number, each, unit) for number in chosen.tolist()]
        return np.stack(drawn, axis=1).ravel()

    def _some(self, number: int, count: int, unit: int) -> Rows:
        """Return `count` random rows of a class, without replacement."""
        members = self.classes[number]
        places = permute(np.arange(count), len(members), key(self.seed, self.epoch, EPISODE, unit, number))
        return members[places]


class EpisodeSampler(UnitSampler):
    """Trains and evaluates on episodes of N classes, with K support and Q query rows of each.

    Held-out episodes are the same at every evaluation. Classes with fewer than K + Q rows are not used.

    Source: Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016, sections 2.2 and 4.1.
    """

    draws_held_out: ClassVar[bool] = True
    _has_told = False

    class Parameters(UnitSampler.Parameters, EpisodeShape):
        """Size and number of episodes."""

        train_episodes: int = param(500, ge=1, doc="Number of episodes per epoch.")
        dev_episodes: int = param(50, ge=1, doc="Number of episodes for an evaluation on held-out data.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: batches that would split episodes."""
            return [*super().conflicts(), *self.torn(self.n_way * (self.k_shot + self.q_query))]

    @property
    def unit_size(self) -> int:
        """Number of rows of one episode."""
        known = self.parameters
        return int(known.n_way * (known.k_shot + known.q_query))

    def plan_of(self, source: Measured, **options: int) -> EpochPlan:
        """Return the plan of one epoch.

        Raises:
            ConfigError: the samples have no labels, or too few classes have enough rows.
        """
        return self._plan(source, self.parameters.train_episodes, **options)

    def epoch_size(self, source: Measured | int) -> int:
        """Return the number of rows in all episodes of an epoch."""
        del source
        return int(self.parameters.train_episodes) * self.unit_size

    def held_out(self, source: Measured, *, batch_size: int, seed: int) -> list[Rows]:
        """Return the rows of each batch of held-out episodes; a batch has as many episodes as fit, at least one."""
        known = self.parameters
        plan = self._plan(
            source, known.dev_episodes, seed=seed, epoch=SAME_EVERY_TIME, batch_size=self.unit_size
        )  # fmt: skip
        at_once = max(batch_size // self.unit_size, 1)
        episodes = [plan.rows_of(episode) for episode in range(known.dev_episodes)]
        return [np.concatenate(episodes[first : first + at_once]) for first in range(0, len(episodes), at_once)]

    def _plan(self, source: Measured, episodes: int, **options: int) -> EpisodePlan:
        known = self.parameters
        each = known.k_shot + known.q_query
        found = rows_by_class(targets_of(source, "episode"))
        large = tuple(rows for rows in found if len(rows) >= each)
        if len(large) < known.n_way:
            problem = f"is {known.n_way}, but only {len(large)} of {len(found)} classes have {each} rows or more."
            remedy = "Use smaller n_way, k_shot or q_query, or more data."
            raise refusal("n_way", problem, remedy)
        if len(large) < len(found) and not self._has_told:
            self._has_told = True
            log.warning(f"{len(found) - len(large)} classes with fewer than {each} rows are left out of all episodes")
        return EpisodePlan(**self.known(episodes, options), classes=large, n_way=known.n_way)
