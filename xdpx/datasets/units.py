"""Samplers whose batches are made of whole units: samples that belong together, such as those of an episode.

Letters: U units of an epoch, S samples of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.datasets.plan import GROUP_ORDER, SAMPLE_ORDER, EpochPlan, Rows, Sampler
from xdpx.processors.randomness import key


@dataclass(frozen=True, eq=False)
class UnitPlan(EpochPlan):
    """The plan of an epoch of consecutive units, each computed from its number; ranks get whole units.

    Attributes:
        unit_size: S; `size` is U * S.
        seed, epoch: determine the content of a unit, together with its number.
    """

    unit_size: int = 1
    seed: int = 0
    epoch: int = 1

    def rows_of(self, unit: int) -> Rows:
        """Return the rows of a unit from 0 to U - 1, (S,). To be overridden."""
        raise NotImplementedError

    def _rows(self, places: Rows) -> Rows:
        return np.concatenate([self.rows_of(unit) for unit in (places[:: self.unit_size] // self.unit_size).tolist()])

    def _share(self, batch: Rows) -> Rows:
        return batch.reshape(-1, self.unit_size)[self.rank :: self.world_size].ravel()


class UnitSampler(Sampler):
    """A sampler whose batches are made of whole units."""

    class Parameters(Sampler.Parameters):
        """Keys of a sampler of units."""

        batch_size: int | None = param(None, ge=1, doc="Samples per batch: a multiple of the samples in one unit.")

        def torn(self, unit_size: int) -> list[tuple[str, str]]:
            """Return conflicts: batches that would split a unit of so many samples, or an order by length."""
            found = []
            if self.batch_by_len:
                found.append(
                    ("batch_by_len", "is true, but the sampler decides which samples form a batch. Set it to false.")
                )
            if self.batch_size is not None and self.batch_size % unit_size:
                problem = f"is {self.batch_size}, but {unit_size} samples belong together."
                found.append(("batch_size", f"{problem} Use a multiple of {unit_size}."))
            return found

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.parameters: Any = parameters

    @property
    def unit_size(self) -> int:
        """Samples of one unit. To be overridden."""
        raise NotImplementedError

    def known(self, num_units: int, options: dict[str, int]) -> dict[str, Any]:
        """Return the arguments that every plan of so many units needs.

        Raises:
            ConfigError: a batch has fewer units than there are ranks.
        """
        unit_size, world_size = self.unit_size, options.get("world_size", 1)
        if options["batch_size"] < unit_size * world_size:
            problem = f"is {options['batch_size']}, which gives no {unit_size} samples to each of {world_size} devices."
            raise refusal("batch_size", problem, f"Use at least {unit_size * world_size}.")
        seed, epoch = options["seed"], options["epoch"]
        return {
            "size": num_units * unit_size, "lengths": None, "unit_size": unit_size, "seed": seed, "epoch": epoch,
            "batch_size": options["batch_size"], "group_size": options.get("group_size", 1),
            "world_size": world_size, "rank": options.get("rank", 0),
            "sample_key": key(seed, epoch, SAMPLE_ORDER), "group_key": key(seed, epoch, GROUP_ORDER),
        }  # fmt: skip
