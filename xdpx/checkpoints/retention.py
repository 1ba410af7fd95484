"""Deletion of old checkpoints, for all commands: none is deleted before the newest has been verified."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from xdpx.checkpoints import folders
from xdpx.checkpoints.publishing import discard, was_read_back
from xdpx.logger import log
from xdpx.utils import io


@dataclass(frozen=True)
class Shelf:
    """A set of checkpoints of one kind, and access to them.

    Attributes:
        steps: of the existing checkpoints.
        path: returns the path of the checkpoint of a step.
        faults: returns its problems, by comparison with its hashes.
        discard: removes it.
    """

    steps: Iterable[int]
    path: Callable[[int], str]
    faults: Callable[[int], list[str]]
    discard: Callable[[int], object]


def shelf_of_folders(
    parent: str, *, naming: Callable[[int], str], steps: Iterable[int], faults: Callable[[str], list[str]]
) -> Shelf:
    """Return the shelf of checkpoint folders; those that this process wrote were read back, so are not hashed again."""

    def path(step: int) -> str:
        return io.join(parent, naming(step))

    def unread(step: int) -> list[str]:
        manifest = folders.manifest_of(path(step))
        known = manifest is not None and was_read_back(manifest.id)
        return folders.check(path(step), hashes=False) if known else faults(path(step))

    return Shelf(steps, path, unread, lambda step: discard(path(step)))


def in_order(steps: Iterable[int], newest: int | None = None) -> list[int]:
    """Return the steps in order of deletion: ascending; modification times are ignored.

    Args:
        steps: of the existing checkpoints.
        newest: the newest step of this run, by default the highest. Higher ones are of an earlier run, or were damaged
            when this run resumed from an older one: they come first.
    """
    ordered = sorted(steps)
    if newest is None:
        return ordered
    return [step for step in ordered if step > newest] + [step for step in ordered if step <= newest]


def prune(shelf: Shelf, stay: Callable[[list[int]], Collection[int]], *, newest: int | None = None) -> list[str]:
    """Delete the checkpoints that `stay` does not keep, and return their paths.

    Call it on one process, while no checkpoint is being written. The newest one is always kept; if it does not match
    its hashes, nothing is deleted. Failures to delete are logged.

    Args:
        shelf: the checkpoints.
        stay: returns the steps to keep; called with all steps, `in_order`.
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
        return False  # another process deleted it
    except OSError as error:
        log.warning(f"{shelf.path(step)}: could not be deleted ({error.strerror or error}).")
        return False
    return True
