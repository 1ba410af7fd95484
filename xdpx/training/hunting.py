"""Find what first made NaN or infinity in an update that is not finite: by taking it again, once, when it happens.

Until then only the newest micro-batches are kept, by reference. Every door has it, for it stands in the lifecycle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from xdpx.engines.origin import NonFiniteUpdate, Origin, ids_of, with_ids
from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import commit, io
from xdpx.utils.pulse import LONG, pulse

FOLDER = "nonfinite"
"""In the folder of a run: a report for people, and the batch with all that is needed to take it again."""
FORMAT = "xdpx-nonfinite-1"
KEPT_UPDATES = 64
KEPT_BYTES = 64 * 2**20
"""What is kept of batches at most: those of the newest updates, from the last look at their numbers on."""
SAVED_AT_MOST = 4 * 2**30
"""Bytes of a state that is saved beside the batch; a larger one is left to checkpoints."""


class Hunter(Callback):
    """Keeps what is needed to take an update again, and does so for the first one that is not finite.

    Args:
        folder: of the run; None writes nothing.
        rank: of this process.
    """

    def __init__(self, folder: str | None, rank: int = 0) -> None:
        self._folder, self._rank = folder, rank
        self._session: Session | None = None
        self._groups: OrderedDict[int, tuple[Any, int]] = OrderedDict()  # number of the update -> group, bytes
        self._bytes = 0
        self._hunted: set[int] = set()

    def on_start(self, session: Session) -> None:
        """Listen to an engine that looks at an update before it takes it."""
        self._session = session
        session.engine.hear_nonfinite = self._heard

    def groups(self, groups: Generator[Any], session: Session) -> Generator[Any]:
        """Yield the same groups, and keep the newest."""
        try:
            for place, group in groups:
                number, size = session.number + 1, _bytes_of(group)
                self._groups[number] = group, size
                self._bytes += size
                while len(self._groups) > KEPT_UPDATES or (self._bytes > KEPT_BYTES and len(self._groups) > 1):
                    self._bytes -= self._groups.popitem(last=False)[1][1]
                yield place, group
        finally:
            groups.close()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Do nothing: what is finite needs no look."""
        return None

    @contextmanager
    def ending(self, session: Session) -> Generator[None]:
        """Hunt where training ends because an update is not finite; its error then says what was found."""
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
        """Take an update again; log, write and return what was found, "" where it was hunted before. On all processes.

        The weights are those before it: it was not taken yet, or no later one moved them.

        Args:
            session: at the newest update.
            number: of the update.
            left_out: training goes on without it, so that those after it have moved the weights.
        """
        if number in self._hunted:
            return ""
        self._hunted.add(number)
        group, _ = self._groups.get(number, (None, 0))
        if group is None:
            return self._tell(f"update {number}: its batch is not kept any more, so it was not taken again.")
        try:
            with pulse.doing("hunting for NaN", LONG):
                origin: Origin | None = session.engine.origin(session.state, group, number)
        except Exception as error:  # whatever fails here, the reason why training ends must be told
            return self._tell(f"update {number} was not taken again: {type(error).__name__}: {error}")
        lines = report(number, origin, group)
        if left_out and session.number > number:
            lines[1:1] = [f"weights are those after update {session.number}: those between, if finite, have moved them"]
        for line in lines:
            log.warning(line)
        return self._write(session, group, number, origin, lines)

    def _tell(self, sentence: str) -> str:
        log.warning(sentence)
        return sentence

    def _write(self, session: Session, group: Any, number: int, origin: Origin | None, lines: Sequence[str]) -> str:
        """Write report and batch; return what an error says of them."""
        told = "" if origin is None else f"It began {origin.headline()}."
        state = None
        with suppress(Exception):  # an engine that cannot copy its state leaves it to checkpoints
            state = session.engine.snapshot(session.state)
        if self._folder is None or (origin is None and self._rank):
            return told
        mark = f"update-{number}" + (f"-rank-{self._rank}" if self._rank else "")
        path = io.join(self._folder, FOLDER, mark)
        try:
            io.makedirs(io.join(self._folder, FOLDER))
            commit.write_text(f"{path}.txt", "\n".join(lines) + "\n")
            _save(f"{path}.pt", number, group, state)
        except (OSError, TypeError, ValueError) as error:
            log.warning(f"{path}: was not written: {error}")
            return told
        log.warning(f"written to {path}.txt; the batch is in {path}.pt: x-script replay_nan {path}.pt")
        return f"{told} {path}.txt tells more.".strip()


def report(number: int, origin: Origin | None, group: Sequence[Any]) -> list[str]:
    """Say what was found; samples are named where the batches were not cut since, and have ids."""
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
    """Return the bytes of the arrays in nested values."""
    if isinstance(tree, Mapping):
        return sum(map(_bytes_of, tree.values()))
    if isinstance(tree, list | tuple):
        return sum(map(_bytes_of, tree)) if tree and not isinstance(tree[0], int | float | str) else 0
    try:
        return int(tree.nbytes)
    except (AttributeError, TypeError):  # no array
        return 0


def _save(path: str, number: int, group: Any, state: Any) -> None:
    """Write what `x-script replay_nan` reads."""
    from xdpx.checkpoints.trusted import bytes_of, save_tensors

    kept = state if state is not None and bytes_of(state) <= SAVED_AT_MOST else None
    values = {"format": FORMAT, "number": number, "group": [plain(batch) for batch in group], "state": kept}
    with commit.replacing(path, "wb") as file:
        save_tensors(values, file)


def plain(tree: Any) -> Any:
    """Return nested values as a file can hold them: tensors on the host, and what is no number as text."""
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
