"""Find where NaN or infinity first appeared in a non-finite update, by running that update a second time.

Until one occurs, the only cost is references to the newest micro-batches. Part of the lifecycle, so every door has it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar, get_args

from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.engines.origin import NonFiniteOrigin, NonFiniteUpdate, Phase, ids_of, with_ids
from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import commit, io
from xdpx.utils.pulse import LONG, pulse

T = TypeVar("T")
R = TypeVar("R")

FOLDER = "nonfinite"
"""Subfolder of a run: a readable report, and the batch with everything needed to run the update again."""
FORMAT = "xdpx-nonfinite-1"
KEPT_UPDATES = 64
KEPT_BYTES = 64 * 2**20
"""Limits on the batches kept in memory, by number of updates and by size; the oldest are dropped first. If the engine
checks each update, only the newest is kept: memory that is used again at once is still in the cache."""
SAVED_AT_MOST = 4 * 2**30
"""Largest state in bytes that is saved beside the batch; for a larger one there are only the checkpoints."""


class Hunter(Callback):
    """Keeps the newest batches, and runs the first non-finite update again to find where it went wrong.

    Args:
        folder: of the run; None writes nothing.
        ranks: the processes that train together. They agree on the rank where it began, and that rank writes.
    """

    def __init__(self, folder: str | None, ranks: Ranks = ALONE) -> None:
        self._folder, self._ranks = folder, ranks
        self._session: Session | None = None
        self._groups: OrderedDict[int, tuple[Any, int]] = OrderedDict()  # number of the update -> group, bytes
        self._bytes = 0
        self._hunted: dict[int, str] = {}  # number of the update -> what was found

    def on_start(self, session: Session) -> None:
        """Have the engine report a non-finite update before it would move the weights."""
        self._session = session
        session.engine.hear_nonfinite = self._heard

    def groups(self, groups: Generator[Any], session: Session) -> Generator[Any]:
        """Yield the groups unchanged, and keep the newest."""
        most = 1 if session.engine.checks_each else KEPT_UPDATES
        try:
            for place, group in groups:
                number, size = session.number + 1, _bytes_of(group)
                self._groups[number] = group, size
                self._bytes += size
                while len(self._groups) > most or (self._bytes > KEPT_BYTES and len(self._groups) > 1):
                    self._bytes -= self._groups.popitem(last=False)[1][1]
                yield place, group
        finally:
            groups.close()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Do nothing: a finite update needs no examination."""
        return None

    @contextmanager
    def ending(self, session: Session) -> Generator[None]:
        """Examine the update when training ends with NonFiniteUpdate, and add the findings to its message."""
        try:
            yield
        except NonFiniteUpdate as error:
            found = self.hunt(session, error.number)
            if found:
                error.args = (f"{error} {found}",)
            raise

    def _heard(self, number: int) -> None:
        if self._session is not None and not self._hunted:
            self.hunt(self._session, number, left_out=True)

    def hunt(self, session: Session, number: int, *, left_out: bool = False) -> str:
        """Run an update again; log, write and return what was found. On all processes.

        Only the first call for an update does the work. The weights are still those from before it, unless `left_out`.

        Args:
            session: at the newest update.
            number: of the update.
            left_out: training skipped this update and went on, so later updates may have moved the weights.
        """
        if number not in self._hunted:
            self._hunted[number] = ""
            self._hunted[number] = self._hunt(session, number, left_out=left_out)
        return self._hunted[number]

    def _hunt(self, session: Session, number: int, *, left_out: bool) -> str:
        mine = self._look(session, number)
        if left_out and session.number > number and mine.origin is not None:
            moved = f"weights are those after update {session.number}: those between, if finite, have moved them"
            mine = mine._replace(lines=[*mine.lines[:1], moved, *mine.lines[1:]])
        rank, lines, told = self._of_all(lambda looks: _first(looks, self._ranks.size), mine)
        state = None
        with suppress(Exception):  # an engine that cannot copy its state leaves it to checkpoints
            state = session.engine.snapshot(session.state, wanted=rank == self._ranks.rank)
        group, _ = self._groups.get(number, (None, 0))
        path = self._write(group, number, state, lines) if rank == self._ranks.rank and group is not None else ""
        path = self._of_all("".join, path)
        if self._ranks.rank == 0:
            kept = [f"written to {path}.txt; the batch is in {path}.pt: x-script replay_nan {path}.pt"] if path else []
            for line in [*lines, *kept]:
                log.warning(line)
        return f"{told} See {path}.txt.".strip() if path else told

    def _look(self, session: Session, number: int) -> Look:
        """Run an update again, if every process still has its batch."""
        group, _ = self._groups.get(number, (None, 0))
        if self._of_all(any, group is None):
            return Look(None, [f"update {number}: its batch is no longer kept, so it was not replayed."], failed=True)
        try:
            with pulse.doing("hunting for NaN", LONG):
                origin: NonFiniteOrigin | None = session.engine.origin(session.state, group, number)
        except Exception as error:  # a failure here must not hide why training ends
            return Look(None, [f"update {number} was not replayed: {type(error).__name__}: {error}"], failed=True)
        return Look(origin, report(number, origin, group))

    def _of_all(self, choose: Callable[[list[T]], R], mine: T) -> R:
        """Gather a value from every process; the first one applies `choose`, and all return the result."""
        everything = self._ranks.gather(mine)
        chosen: R = self._ranks.broadcast(choose(everything) if self._ranks.rank == 0 and everything else None)
        return chosen

    def _write(self, group: Any, number: int, state: Any, lines: Sequence[str]) -> str:
        """Write report and batch; return their common path without the suffix, "" if nothing was written."""
        if self._folder is None:
            return ""
        rank = self._ranks.rank
        path = io.join(self._folder, FOLDER, f"update-{number}" + (f"-rank-{rank}" if rank else ""))
        try:
            io.makedirs(io.join(self._folder, FOLDER))
            commit.write_text(f"{path}.txt", "\n".join(lines) + "\n")
            _save(f"{path}.pt", number, group, state, rank=rank)
        except (OSError, TypeError, ValueError) as error:
            log.warning(f"{path}: was not written: {error}")
            return ""
        return path


class Look(NamedTuple):
    """What one process found when it ran an update again.

    Attributes:
        origin: where NaN or infinity first appeared on this process; None if everything was finite.
        lines: the report.
        failed: whether the update could not be run again here.
    """

    origin: NonFiniteOrigin | None
    lines: list[str]
    failed: bool = False


def _first(looks: Sequence[Look], size: int) -> tuple[int, list[str], str]:
    """Return (rank, report, sentence) of the process where it began; if none, of one that failed, else of rank 0."""
    phases = get_args(Phase)
    met = [  # sums come last: one over processes is finite on none of them if what one has added is not
        (each.origin.phase == "sum", each.origin.micro_batch, phases.index(each.origin.phase), rank)
        for rank, each in enumerate(looks)
        if each.origin is not None
    ]
    if not met:
        rank = next((rank for rank, each in enumerate(looks) if each.failed), 0)
        return rank, looks[rank].lines, looks[rank].lines[0] if looks[rank].failed else ""
    first = min(met)
    rank = first[-1]
    origin, lines, _ = looks[rank]
    headline = "" if origin is None else origin.headline()
    if size == 1:
        return rank, lines, f"It began {headline}."
    others = [number for in_sum, *_, number in met if number != rank and in_sum == first[0]]
    also = f"; also on {', '.join(map(str, others))}" if others else "; the others give finite numbers"
    return (
        rank,
        [lines[0], f"on rank {rank} of {size} processes{also}", *lines[1:]],
        f"It began on rank {rank}, {headline}.",
    )


def report(number: int, origin: NonFiniteOrigin | None, group: Sequence[Any]) -> list[str]:
    """Return the report in lines, with the ids of the samples if the batch has them and was not split."""
    if origin is None:
        return [
            f"update {number} was taken again, and all of it is finite now: the weights have moved since, or it "
            "depends on what is not repeated. Set log_interval to 1 to catch it where it happens."
        ]
    index = origin.micro_batch
    if index < len(group) and isinstance(group[index], Mapping):
        origin = with_ids(origin, ids_of(group[index]))
    return [f"update {number} was taken again, module by module:", *origin.lines()]


def _bytes_of(tree: Any) -> int:
    """Return the size in bytes of all arrays in nested containers."""
    parts: Any = (tree,)
    if type(tree) is dict or isinstance(tree, Mapping):  # the latter is slow, and this runs for every update
        parts = tree.values()
    elif isinstance(tree, list | tuple):
        parts = tree if tree and not isinstance(tree[0], int | float | str) else ()
    size = 0
    for part in parts:  # a call for each array would take longer than the rest
        found = getattr(part, "nbytes", None)
        if isinstance(found, int):
            size += found
        elif part is not tree:
            size += _bytes_of(part)
    return size


def _save(path: str, number: int, group: Any, state: Any, *, rank: int) -> None:
    """Write the file that `x-script replay_nan` reads."""
    from xdpx.checkpoints.trusted import bytes_of, save_tensors

    kept = state if state is not None and bytes_of(state) <= SAVED_AT_MOST else None
    values = {"format": FORMAT, "number": number, "group": [plain(batch) for batch in group], "state": kept}
    values["rank"] = rank  # each rank has its own random state
    values["command"] = [str(word) for word in sys.argv]
    with commit.replacing(path, "wb") as file:
        save_tensors(values, file)


def plain(tree: Any) -> Any:
    """Return nested values that can be saved: arrays as tensors on the CPU, non-numeric arrays as lists of strings."""
    import numpy as np
    import torch

    if isinstance(tree, Mapping):
        return {str(name): plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    array = np.asarray(tree)
    return torch.from_numpy(np.array(array)) if array.dtype.kind in "biuf" else [str(each) for each in array.ravel()]
