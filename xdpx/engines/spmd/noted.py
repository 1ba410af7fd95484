"""Means over updates of what layers record: kept on the devices, and fetched when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PENDING_AT_MOST = 512
"""Number of updates whose values may wait on the devices."""

_BETWEEN = "\n"


def mean_of(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of each value over the micro-batches that recorded it. Traced by JAX."""
    values: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            values.setdefault(name, []).append(jnp.asarray(value, jnp.float32))
    return {name: jnp.mean(jnp.stack(each)) for name, each in values.items()}


def packed(values: Mapping[str, Any], valid: Any) -> dict[str, Any]:
    """Return single numbers by name as one vector under all names, followed by 1; all 0 if `valid` is 0. Traced by JAX.

    One vector, because each output of a program costs time.
    """
    if not values:
        return {}
    vector = jnp.stack([*(jnp.asarray(value, jnp.float32) for value in values.values()), jnp.ones((), jnp.float32)])
    return {_BETWEEN.join(values): jnp.where(valid > 0, vector, 0.0)}


class NotedMeans:
    """Adds up what `packed` returned for each update, without waiting for the devices."""

    def __init__(self) -> None:
        self._pending: list[Mapping[str, Any]] = []
        self._sums: dict[str, tuple[float, float]] = {}  # (sum, number of updates) by name

    def add(self, found: Mapping[str, Any]) -> None:
        """Add the values of one update."""
        if found:
            self._pending.append(found)
        if len(self._pending) >= PENDING_AT_MOST:
            self._settle()

    def take(self) -> dict[str, float]:
        """Return the mean of each value over the updates since the last call; NaN if all of them were skipped."""
        self._settle()
        sums, self._sums = self._sums, {}
        return {name: total / count if count else float("nan") for name, (total, count) in sums.items()}

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for found in jax.device_get(pending):
            for names, vector in found.items():
                *values, count = np.asarray(vector, np.float64).tolist()
                for name, value in zip(names.split(_BETWEEN), values, strict=True):
                    total, number = self._sums.get(name, (0.0, 0.0))
                    self._sums[name] = total + value, number + count
