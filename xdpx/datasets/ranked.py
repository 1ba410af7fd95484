"""The sampler `rank`: epochs of queries, with the candidates of a query in one batch, for ranking losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.datasets.balanced import rows_by_class, targets_of
from xdpx.datasets.plan import EpochPlan, Measured, Rows
from xdpx.datasets.units import UnitPlan, UnitSampler
from xdpx.processors.randomness import key, permute

CANDIDATES = 5
"""Purpose of a random key, different from those in `plan`, `balanced` and `episodes`."""


@dataclass(frozen=True, eq=False)
class RankPlan(UnitPlan):
    """A plan of lists of candidates, one list per query.

    Attributes:
        queries: the rows of each query.
        grades: relevance of every row, (size of the data,).
    """

    queries: tuple[Rows, ...] = ()
    grades: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def rows_of(self, unit: int) -> Rows:
        """Return random candidates of the next query, including one of the best; repeated if there are too few."""
        place = np.array([unit])
        candidates = self.queries[int(permute(place, len(self.queries), self.sample_key)[0])]
        order = key(self.seed, self.epoch, CANDIDATES, unit)
        candidates = candidates[permute(np.arange(len(candidates)), len(candidates), order)]
        best = int(self.grades[candidates].argmax())
        candidates = np.concatenate([candidates[best : best + 1], np.delete(candidates, best)])
        return np.resize(candidates, self.unit_size)


class RankSampler(UnitSampler):
    """Each query once per epoch, with `list_size` of its candidates, including one of the best.

    Queries with a single candidate are not used. In evaluations, all rows are scored, and metrics use all candidates of
    a query.
    """

    class Parameters(UnitSampler.Parameters):
        """The number of candidates in a list."""

        list_size: int = param(8, ge=2, doc="Number of candidates of a query in one list.")
        label_values: list[float] | None = param(
            None, doc="The grade of each label, from meta.hjson (target_type: number); null: its class number."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: batches that would split lists."""
            return [*super().conflicts(), *self.torn(self.list_size)]

    @property
    def unit_size(self) -> int:
        """Number of rows of one list."""
        return int(self.parameters.list_size)

    def plan_of(self, source: Measured, **options: int) -> EpochPlan:
        """Return the plan of one epoch.

        Raises:
            ConfigError: the samples have no queries, or no grades.
        """
        queries, grades = _queries_of(source), targets_of(source, "rank")
        if self.parameters.label_values is not None:
            grades = np.asarray(self.parameters.label_values)[grades]
        return RankPlan(**self.known(len(queries), options), queries=queries, grades=grades)

    def epoch_size(self, source: Measured | int) -> int:
        """Return the number of rows in the lists of an epoch.

        Raises:
            ConfigError: the samples have no queries, or do not exist yet.
        """
        if isinstance(source, int):
            problem = "is true, but the number of queries in a shard is unknown until it is read."
            raise refusal("lazy_load", problem, "Set it to false, or use another sampler.")
        return len(_queries_of(source)) * self.unit_size


def _queries_of(source: Measured) -> tuple[Rows, ...]:
    """Return the rows of each query with several candidates. Raises ConfigError if there is no such query."""
    if "query_id" not in source:
        problem = "is 'rank', but the samples have no queries."
        raise refusal("sampler", problem, "Preprocess with loader: rank, or use another.")
    found = tuple(rows for rows in rows_by_class(source.numbers("query_id")) if len(rows) > 1)
    if not found:
        problem = "is 'rank', but no query of the training data has two candidates."
        remedy = "Give all candidates of a query the same name, in the first column."
        raise refusal("sampler", problem, remedy)
    return found
