"""Epochs of queries: the candidates of one query come together, so that they can be told apart by rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.datasets.balanced import rows_by_class, targets_of
from xdpx.datasets.plan import EpochPlan, Measured, Rows
from xdpx.datasets.units import UnitPlan, UnitSampler
from xdpx.processors.randomness import key, permute

CANDIDATES = 5
"""What a key is for, beside those of `plan`, `balanced` and `episodes`."""


@dataclass(frozen=True, eq=False)
class RankPlan(UnitPlan):
    """Lists of candidates, one of each query.

    Attributes:
        queries: the rows of each query.
        grades: of every row, (size of the data,).
    """

    queries: tuple[Rows, ...] = ()
    grades: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def rows_of(self, unit: int) -> Rows:
        """Return candidates of the query whose turn it is: one of its best, others, and again where they are few."""
        place = np.array([unit])
        candidates = self.queries[int(permute(place, len(self.queries), self.sample_key)[0])]
        order = key(self.seed, self.epoch, CANDIDATES, unit)
        candidates = candidates[permute(np.arange(len(candidates)), len(candidates), order)]
        best = int(self.grades[candidates].argmax())
        candidates = np.concatenate([candidates[best : best + 1], np.delete(candidates, best)])
        return np.resize(candidates, self.unit_size)


class RankSampler(UnitSampler):
    """Each query once per epoch, with `list_size` of its candidates, one of the best of them among these.

    Queries with one candidate only have no order, and are left out. Data are scored row by row as ever: metrics look
    at all candidates of a query.
    """

    class Parameters(UnitSampler.Parameters):
        """How many candidates come together."""

        list_size: int = param(8, ge=2, doc="Candidates of a query that are trained on at once.")
        label_values: list[float] | None = param(
            None, doc="The grade that each label is, from meta.hjson (target_type: number); null: its class number."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse batches of parts of lists."""
            return [*super().conflicts(), *self.torn(self.list_size)]

    @property
    def unit_size(self) -> int:
        """Rows of one list."""
        return int(self.parameters.list_size)

    def plan_of(self, source: Measured, **options: int) -> EpochPlan:
        """Plan one epoch.

        Raises:
            ConfigError: the samples know no queries, or no grades.
        """
        queries, grades = _queries_of(source), targets_of(source, "rank")
        if self.parameters.label_values is not None:
            grades = np.asarray(self.parameters.label_values)[grades]
        return RankPlan(**self.known(len(queries), options), queries=queries, grades=grades)

    def epoch_size(self, source: Measured | int) -> int:
        """Return the number of rows in the lists of an epoch.

        Raises:
            ConfigError: the samples know no queries, or are not there yet.
        """
        if isinstance(source, int):
            problem = "is true, but how many queries a shard has is not known before it is read."
            raise ConfigError(THIS_RUN, [Fault("lazy_load", problem, "Set it to false, or use another sampler.")])
        return len(_queries_of(source)) * self.unit_size


def _queries_of(source: Measured) -> tuple[Rows, ...]:
    """Return the rows of each query that has several candidates."""
    if "query_id" not in source:
        problem = "is 'rank', but the samples know no queries."
        raise ConfigError(THIS_RUN, [Fault("sampler", problem, "Preprocess with loader: rank, or use another.")])
    found = rows_by_class(source.numbers("query_id"))
    return tuple(rows for rows in found if len(rows) > 1)
