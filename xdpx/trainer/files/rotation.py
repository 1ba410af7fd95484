"""Limit the number of checkpoints; keep the newest, the newest finite, the best, and the newest to resume from."""

from __future__ import annotations

from collections.abc import Callable, Collection

from xdpx.checkpoints import folders
from xdpx.checkpoints.retention import prune, shelf_of_folders
from xdpx.utils import io
from xdpx.utils.paths import StrPath


def rotate(
    parent: StrPath,
    *,
    limit: int | None,
    current: int | None = None,
    best: str | None = None,
    busy: Collection[str] = (),
) -> list[str]:
    """Delete the oldest checkpoints until `limit` are left, as `retention.prune` does; on one process per disk.

    A folder that is only named as a checkpoint, with no file of a Trainer in it, is left alone and does not count.

    Args:
        parent: the folder of the run.
        limit: number to keep (`save_total_limit`); None or 0 keeps all. More are kept if the best, or the newest with
            finite weights, is not the newest.
        current: the step that was just saved; by default the highest one.
        best: path of the best one so far, which is kept.
        busy: paths of others that must not be deleted now, e.g. because they are being uploaded.

    Returns:
        The paths of the deleted ones.
    """
    place = io.plain(parent)
    if not limit or limit < 0:
        return []

    def path(step: int) -> str:
        return io.join(place, folders.folder_name(step))

    best_name = ""
    if best and io.abspath(io.parent(io.abspath(best))) == io.abspath(place):  # else it is in another folder
        best_name = io.name(best)

    def stay(order: list[int]) -> list[int]:
        # Of those with finite weights, the newest and the newest that can be resumed; usually the same.
        finite = [step for step in order if folders.is_finite(path(step))]
        wanted = {order[-1], *_newest_resumable(order, path), *finite[-1:], *_newest_resumable(finite, path)}
        wanted |= {step for step in order if folders.folder_name(step) == best_name}
        excess = max(0, len(order) - max(limit, len(wanted)))
        uploading = {io.plain(each) for each in busy}
        doomed = [step for step in order if step not in wanted and path(step) not in uploading][:excess]
        return [step for step in order if step not in doomed]

    steps = [step for step in folders.steps(place) if folders.is_checkpoint(path(step))]
    shelf = shelf_of_folders(place, naming=folders.folder_name, steps=steps, faults=folders.check)
    return prune(shelf, stay, newest=current)


def _newest_resumable(order: list[int], path: Callable[[int], str]) -> list[int]:
    return next(([step] for step in reversed(order) if not folders.missing_parts(path(step))), [])
