"""Copies in shared memory of states whose parts are on many processes: each keeps its own share, and takes it back.

Nothing is sent anywhere, and nothing is gathered: a share is the bytes of the parts that the devices of a process hold.
What processes restored together must be of one step, so the one before stays until all of them have the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_copies import OWNER, RunMemory
from xdpx.logger import log
from xdpx.utils import commit, io

PREFIX = "share-"
STEP, PARTS, FACTS = "step", "parts", "facts"


@dataclass(frozen=True)
class Part:
    """A part of an array that a process holds.

    Attributes:
        name: of the array.
        index: where in it the part is: start and end along each axis.
        dtype: its name, as JAX and NumPy say it.
    """

    name: str
    index: tuple[tuple[int, int], ...]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(end - start for start, end in self.index)


class MemoryShares(RunMemory):
    """The shares of one run, in a folder of each process of the machine."""

    def __init__(self, folder: str, ranks: Ranks, *, interval: int) -> None:
        super().__init__(folder, ranks, interval=interval)
        self._mine = io.join(self.place, f"process-{ranks.rank}-of-{ranks.size}")
        self._last = 0

    def settle(self) -> None:
        """Forget what is older than the share that all processes have; on all of them, while none is written."""
        agreed = min(self._ranks.broadcast(self._ranks.gather(self._last)))
        for step in self._steps():
            if step < agreed:
                commit.discard(self._mine, f"{PREFIX}{step}")

    def save(self, step: int, parts: Iterable[tuple[Part, np.ndarray[Any, Any]]], facts: Mapping[str, Any]) -> None:
        """Write the share of this process; the one before stays.

        Args:
            step: number of updates taken.
            parts: all that its devices hold; what is written may be changed when this returns.
            facts: what JSON can hold.
        """
        parts = list(parts)
        told = [[part.name, part.index, part.dtype] for part, _ in parts]
        facts = {OWNER: self._identity, STEP: step, PARTS: told, FACTS: facts}
        try:
            self._make_home()
            with commit.Commit(self._mine, f"{PREFIX}{step}", facts=facts) as opened, opened.open(_file(step)) as file:
                for part, values in parts:
                    if 0 not in part.shape:
                        file.write(_bytes(values))
        except OSError as error:
            log.warning(f"no copy of the state is kept in memory: {error}", once=True)
            return
        self._last = step

    def newest(self, wanted: Sequence[Part], *, before: int) -> int:
        """Return the step of the newest share that all processes hold whole, byte by byte; 0 for none. On all of them.

        Args:
            wanted: the parts that this process needs: with another mesh, or another model, there is no share of it.
            before: steps from this one on do not count.
        """
        identity = self._ranks.broadcast(self._written_identity() if self._ranks.rank == 0 else "")
        steps = [step for step in self._steps() if identity and step < before]
        usable = [step for step in steps if self._is_usable(step, identity, wanted)]
        told = self._ranks.broadcast(self._ranks.gather(usable))
        self._last = max(set.intersection(*map(set, told)), default=0)
        return self._last

    def load(self, step: int) -> tuple[dict[Part, np.ndarray[Any, Any]], Mapping[str, Any]]:
        """Return the parts of a share that `newest` has found, and its facts."""
        manifest = commit.read_manifest(self._mine, f"{PREFIX}{step}")
        if manifest is None:
            raise FileNotFoundError(f"{self._mine}: the copy of step {step} in memory is gone.")
        with io.open(io.join(self._mine, _file(step)), "rb") as file:
            data = np.frombuffer(file.read(), np.uint8)
        found, offset = {}, 0
        for part in _parts(manifest):
            kind = np.dtype(part.dtype)
            size = kind.itemsize * int(np.prod(part.shape))
            found[part] = data[offset : offset + size].view(kind).reshape(part.shape)
            offset += size
        facts: Mapping[str, Any] = manifest.facts[FACTS]
        return found, facts

    def _steps(self) -> list[int]:
        names = commit.manifests(self._mine) if io.isdir(self._mine) else []
        found = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
        return sorted({int(number) for number in found if number.isdecimal()})

    def _is_usable(self, step: int, identity: str, wanted: Sequence[Part]) -> bool:
        name = f"{PREFIX}{step}"
        manifest = commit.read_manifest(self._mine, name)
        if manifest is None or manifest.facts.get(OWNER) != identity or set(_parts(manifest)) != set(wanted):
            return False
        faults = commit.problems(self._mine, name, hashes=True)
        if faults:
            log.warning(f"the copy of step {step} in memory is not used: {'; '.join(faults)}")
        return not faults


def _file(step: int) -> str:
    return f"{PREFIX}{step}.bin"


def _bytes(values: np.ndarray[Any, Any]) -> memoryview:
    # As bytes: types that NumPy itself does not have, such as bfloat16, are no buffers.
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _parts(manifest: commit.Manifest) -> list[Part]:
    found = manifest.facts[PARTS]
    return [Part(name, tuple((start, end) for start, end in index), dtype) for name, index, dtype in found]
