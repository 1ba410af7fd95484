"""Detection of duplicate records, with 16 bytes of memory per record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


class SeenRecords:
    """The 128-bit hashes of all records so far, in sorted runs of doubling sizes, so that adding is cheap.

    Records with equal hashes count as equal; among a billion, the chance of a false match is below 1e-20.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add hashes (N, 2), and return which of them are new (N,). Of equal ones, only the first is new."""
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal hashes keep their order
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
    # Searching by the first word is enough: records that share it but not the second one are one in 2**64.
    places = np.minimum(np.searchsorted(run[:, 0], hashes[:, 0]), len(run) - 1)
    found: NDArray[np.bool_] = (run[places] == hashes).all(axis=1)
    return found


def _merge(one: Hashes, other: Hashes) -> Hashes:
    both = np.concatenate([one, other])
    return both[np.argsort(both[:, 0], kind="stable")]
