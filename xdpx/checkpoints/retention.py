"""Which checkpoints go, for every door: none before the newest has been read back. Doors say which stay, and where."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from xdpx.checkpoints import folders
from xdpx.checkpoints.publishing import discard, was_read_back
from xdpx.logger import log
from xdpx.utils import io


@dataclass(frozen=True)
class Shelf:
    """Where checkpoints of one kind lie.

    Attributes:
        steps: those that are there.
        path: of the checkpoint of a step.
        faults: what is wrong with that of a step, compared with its hashes.
        discard: removes that of a step.
    """

    steps: Iterable[int]
    path: Callable[[int], str]
    faults: Callable[[int], list[str]]
    discard: Callable[[int], object]


def shelf_of_folders(
    parent: str, *, naming: Callable[[int], str], steps: Iterable[int], faults: Callable[[str], list[str]]
) -> Shelf:
    """Return checkpoints that are folders. What this process wrote was read back then, and is not hashed again."""

    def path(step: int) -> str:
        return io.join(parent, naming(step))

    def unread(step: int) -> list[str]:
        manifest = folders.manifest_of(path(step))
        known = manifest is not None and was_read_back(manifest.id)
        return folders.check(path(step), hashes=False) if known else faults(path(step))

    return Shelf(steps, path, unread, lambda step: discard(path(step)))


def in_order(steps: Iterable[int], newest: int | None = None) -> list[int]:
    """Return the steps, those to be deleted first in front: steps decide what is old, never the time of a file.

    Args:
        steps: of the checkpoints that are there.
        newest: the step that counts as the newest, by default the highest. Those beyond it belong to an earlier run, or
            were damaged when this one was resumed from before them: they go first.
    """
    ordered = sorted(steps)
    if newest is None:
        return ordered
    return [step for step in ordered if step > newest] + [step for step in ordered if step <= newest]


def prune(shelf: Shelf, stay: Callable[[list[int]], Collection[int]], *, newest: int | None = None) -> list[str]:
    """Delete checkpoints that need not stay, and return their paths. On one process, while none is being written.

    Nothing is deleted before the newest has been read back and compared with its hashes; it stays in any case. One that
    cannot be deleted is warned of.

    Args:
        shelf: the checkpoints.
        stay: gives the steps that are to stay, from all of them `in_order`.
        newest: see `in_order`.
    """
    order = in_order(shelf.steps, newest)
    kept = {*order[-1:], *(stay(order) if order else ())}
    surplus = [step for step in order if step not in kept]
    faults = shelf.faults(order[-1]) if surplus else []
    if faults:
        where = shelf.path(order[-1])
        log.warning(f"No checkpoint was deleted, because the newest cannot be trusted: {where}: {' '.join(faults)}")
        return []
    return [shelf.path(step) for step in surplus if _deleted(shelf, step)]


def _deleted(shelf: Shelf, step: int) -> bool:
    try:
        shelf.discard(step)
    except FileNotFoundError:
        return False  # somebody else did
    except OSError as error:
        log.warning(f"{shelf.path(step)}: could not be deleted ({error.strerror or error}).")
        return False
    return True
