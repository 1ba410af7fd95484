"""Copies of sharded states in shared memory: each process keeps the shards of its own devices, and restores them.

Only numbers of steps are sent between processes. They must restore the same step, so the previous share stays until all
processes have reported that they have written the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_copies import OWNER, RunMemory
from xdpx.logger import log
from xdpx.utils import commit, io

PREFIX = "share-"
CONTENT, PARTS, FACTS = "content", "parts", "facts"


@dataclass(frozen=True)
class Part:
    """A shard of an array on a device of a process.

    Attributes:
        name: of the array.
        index: (start, end) of the part along each axis of the array.
        dtype: name of the type in JAX and NumPy.
    """

    name: str
    index: tuple[tuple[int, int], ...]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part."""
        return tuple(end - start for start, end in self.index)


class MemoryShares(RunMemory):
    """The shares of one run, in one folder per process.

    Args:
        folder, ranks, interval: see `RunMemory`.
        report: stores a step of this process, and returns those that all processes stored last, None where there is
            none yet; must not wait for the others. By default there are no others.
    """

    def __init__(
        self, folder: str, ranks: Ranks, *, interval: int,
        report: Callable[[int], list[int | None]] = lambda step: [step],
    ) -> None:  # fmt: skip
        super().__init__(folder, ranks, interval=interval)
        self._mine = io.join(self.place, f"process-{ranks.rank}-of-{ranks.size}")
        self._report = report
        self._common = 0  # the newest step whose shares all processes are known to have

    def save(self, step: int, parts: Iterable[tuple[Part, np.ndarray[Any, Any]]], facts: Mapping[str, Any]) -> None:
        """Write the share of this process, and remove older ones. Does not wait for the others. Logs failures.

        Args:
            step: number of updates taken.
            parts: all parts on the devices of this process; may be overwritten when this returns.
            facts: JSON values to store with it.
        """
        parts = list(parts)
        told = [[part.name, part.index, part.dtype] for part, _ in parts]
        # As one string: manifests are written with line breaks, which for long lists takes Python, beside training.
        facts = {OWNER: self._identity, CONTENT: json.dumps({PARTS: told, FACTS: facts})}
        try:
            self._make_home()
            with commit.Commit(self._mine, f"{PREFIX}{step}", facts=facts) as opened, opened.open(_file(step)) as file:
                for part, values in parts:
                    if 0 not in part.shape:
                        file.write(_bytes(values))
        except OSError as error:
            log.warning(f"no copy of the state is kept in memory: {error}", once=True)
            return
        self._discard_others(step)

    def newest(self, wanted: Sequence[Part], *, before: int) -> int:
        """Return the newest step whose shares all processes have undamaged, 0 if there is none; call on all of them.

        Args:
            wanted: the parts that this process needs; a share with other parts, as after a change of the mesh or the
                model, is not used.
            before: only steps below this one are considered.
        """
        identity = self._ranks.broadcast(self._written_identity() if self._ranks.rank == 0 else "")
        steps = [step for step in self._steps() if identity and step < before]
        usable = [step for step in steps if self._is_usable(step, identity, wanted)]
        told = self._ranks.broadcast(self._ranks.gather(usable))
        self._common = max(set.intersection(*map(set, told)), default=0)
        return self._common

    def load(self, step: int) -> tuple[dict[Part, np.ndarray[Any, Any]], Mapping[str, Any]]:
        """Return (parts, facts) of a share that `newest` found. Raises FileNotFoundError if it was removed since."""
        manifest = commit.read_manifest(self._mine, f"{PREFIX}{step}")
        if manifest is None:
            raise FileNotFoundError(f"{self._mine}: the copy of step {step} in memory is gone.")
        with io.open(io.join(self._mine, _file(step)), "rb") as file:
            data = np.frombuffer(file.read(), np.uint8)
        found, offset = {}, 0
        content = json.loads(manifest.facts[CONTENT])
        for part in _parts(content):
            kind = np.dtype(part.dtype)
            size = kind.itemsize * int(np.prod(part.shape))
            found[part] = data[offset : offset + size].view(kind).reshape(part.shape)
            offset += size
        facts: Mapping[str, Any] = content[FACTS]
        return found, facts

    def _discard_others(self, step: int) -> None:
        """Remove all shares but the one that all processes have and the newest two, now that this step is written.

        Others may be one share behind, since an update ends nowhere before all have begun it. A process whose writing
        fails may be further behind, and must not make the others keep everything.
        """
        written = [each for each in self._report(step) if each is not None]
        if len(written) == self._ranks.size:
            self._common = min(written)
        steps = self._steps()
        kept = {self._common, *[each for each in steps if each <= step][-2:]}
        for each in steps:
            if each not in kept or each < self._common:
                commit.discard(self._mine, f"{PREFIX}{each}")

    def _steps(self) -> list[int]:
        names = commit.manifests(self._mine) if io.isdir(self._mine) else []
        found = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
        return sorted({int(number) for number in found if number.isdecimal()})

    def _is_usable(self, step: int, identity: str, wanted: Sequence[Part]) -> bool:
        name = f"{PREFIX}{step}"
        manifest = commit.read_manifest(self._mine, name)
        if manifest is None or manifest.facts.get(OWNER) != identity or CONTENT not in manifest.facts:
            return False
        if set(_parts(json.loads(manifest.facts[CONTENT]))) != set(wanted):
            return False
        faults = commit.problems(self._mine, name, hashes=True)
        if faults:
            log.warning(f"the copy of step {step} in memory is not used: {'; '.join(faults)}")
        return not faults


def _file(step: int) -> str:
    return f"{PREFIX}{step}.bin"


def _bytes(values: np.ndarray[Any, Any]) -> memoryview:
    # As bytes: types that are not NumPy's own, such as bfloat16, do not support the buffer protocol.
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _parts(content: Mapping[str, Any]) -> list[Part]:
    found = content[PARTS]
    return [Part(name, tuple((start, end) for start, end in index), dtype) for name, index, dtype in found]
