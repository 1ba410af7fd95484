"""The sampler `balanced`: epochs in which every class occurs equally often, however rare it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.datasets.plan import EpochPlan, Measured, Rows, Sampler
from xdpx.processors.randomness import key, permute

CLASS_ORDER = 3
"""Purpose of a random key, different from those in `plan`."""


@dataclass(frozen=True, eq=False)
class BalancedPlan(EpochPlan):
    """An epoch with as many samples as the data, whose positions are assigned to the classes in turn.

    Small classes are repeated, each time in another order; of large ones only a part is used, another one in each
    epoch. Like every plan, it can be looked up at any position directly.

    Attributes:
        classes: the rows of each class.
        seed, epoch: determine the order within each class.
    """

    classes: tuple[Rows, ...] = ()
    seed: int = 0
    epoch: int = 1

    def _rows(self, places: Rows) -> Rows:
        turns, owners = np.divmod(super()._rows(places), len(self.classes))
        rows = np.empty(len(places), np.int64)
        for owner, members in enumerate(self.classes):
            mine = owners == owner
            rows[mine] = members[self._order(owner, len(members), turns[mine])]
        return rows

    def _order(self, owner: int, size: int, turns: Rows) -> Rows:
        """Return the index within a class of the sample at each of its turns."""
        rounds, places = np.divmod(turns, size)
        found = np.empty(len(turns), np.int64)
        for number in np.unique(rounds).tolist():
            now = rounds == number
            found[now] = permute(places[now], size, key(self.seed, self.epoch, CLASS_ORDER, owner, number))
        return found


class BalancedSampler(Sampler):
    """Each class occurs equally often: the length of an epoch is unchanged, and rare classes are repeated."""

    class Parameters(Sampler.Parameters):
        """Keys of `balanced`."""

    def plan_of(self, source: Measured, **options: int) -> EpochPlan:
        """Return the plan of one epoch.

        Raises:
            ConfigError: the samples have no labels, or several each.
        """
        plain = super().plan_of(source, **options)
        classes = rows_by_class(targets_of(source, "balanced"))
        kept: dict[str, Any] = {item.name: getattr(plain, item.name) for item in fields(plain) if item.init}
        kept.pop("_window")
        return BalancedPlan(**kept, classes=classes, seed=options["seed"], epoch=options["epoch"])


def rows_by_class(targets: NDArray[np.integer[Any]]) -> tuple[Rows, ...]:
    """Return the rows of each class that occurs, in ascending order."""
    order = np.argsort(targets, kind="stable")
    starts = np.flatnonzero(np.diff(targets[order])) + 1
    return tuple(np.split(order, starts))


def targets_of(source: Measured, sampler: str) -> NDArray[np.integer[Any]]:
    """Return the class of each sample; `sampler` is the name for messages.

    Raises:
        ConfigError: the samples have no labels, or several each.
    """
    try:
        return np.asarray(source.numbers("target"))
    except KeyError as error:
        what = "several labels each" if "target" in source else "no labels"
        problem = f"is '{sampler}', but the samples have {what}."
        raise refusal("sampler", problem, "Use sampler: default.") from error
