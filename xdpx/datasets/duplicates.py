"""Which of many records came before, in 16 bytes of memory per record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


class SeenRecords:
    """The hashes of all records so far, in sorted runs whose sizes double, so that adding costs little.

    Two records with the same 128 bits count as the same: among a billion the chance of a false one is below 1e-20.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add hashes, shape (N, 2); return which of them are new, shape (N,). Of equal ones the first is new."""
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal hashes stay in the order they came in
        ordered = hashes[order]
        new = np.ones(len(hashes), np.bool_)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        for run in self._runs:
            new &= ~_contains(run, ordered)
        self._runs.append(ordered[new])
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            self._runs.append(_merge(self._runs.pop(), self._runs.pop()))
        first = np.empty(len(hashes), np.bool_)
        first[order] = new
        return first


def _contains(run: Hashes, hashes: Hashes) -> NDArray[np.bool_]:
    if not len(run):
        return np.zeros(len(hashes), np.bool_)
    # The first word finds the place. Two records that share it but not the second one are one in 2**64.
    places = np.minimum(np.searchsorted(run[:, 0], hashes[:, 0]), len(run) - 1)
    found: NDArray[np.bool_] = (run[places] == hashes).all(axis=1)
    return found


def _merge(one: Hashes, other: Hashes) -> Hashes:
    both = np.concatenate([one, other])
    return both[np.argsort(both[:, 0], kind="stable")]
