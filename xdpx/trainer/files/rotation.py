"""Keep as many checkpoints as asked for: always the newest, the newest finite, the best, and one to continue from."""

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

    Args:
        parent: the folder of the run.
        limit: how many to keep (`save_total_limit`); None or 0 keeps all. More are kept in any case when the
            best, or the newest whose weights are finite, is not the newest.
        current: the step that was just saved; by default the highest there is.
        best: path of the best one so far, which stays.
        busy: paths of others that must stay for now, e.g. because they are being uploaded.

    Returns:
        The paths that were deleted.
    """
    place = io.plain(parent)
    if not limit or limit < 0:
        return []

    def path(step: int) -> str:
        return io.join(place, folders.folder_name(step))

    def stay(order: list[int]) -> list[int]:
        wanted = {order[-1], *_newest_resumable(order, path), *_newest_finite(order, path)} | {
            step for step in order if folders.folder_name(step) == _name_in(best, place)
        }
        excess = max(0, len(order) - max(limit, len(wanted)))
        uploading = {io.plain(each) for each in busy}
        doomed = [step for step in order if step not in wanted and path(step) not in uploading][:excess]
        return [step for step in order if step not in doomed]

    shelf = shelf_of_folders(place, naming=folders.folder_name, steps=folders.steps(place), faults=folders.check)
    return prune(shelf, stay, newest=current)


def _newest_resumable(order: list[int], path: Callable[[int], str]) -> list[int]:
    return next(([step] for step in reversed(order) if not folders.missing_parts(path(step))), [])


def _newest_finite(order: list[int], path: Callable[[int], str]) -> list[int]:
    """Return the newest whose weights are finite, and the newest of these to continue from: one, as a rule."""
    finite = [step for step in order if folders.is_finite(path(step))]
    return finite[-1:] + _newest_resumable(finite, path)


def _name_in(path: str | None, place: str) -> str:
    """Return the name of a checkpoint when it lies in `place`, also when its path was written in another way."""
    if not path or io.abspath(io.parent(io.abspath(path))) != io.abspath(place):
        return ""
    return io.name(path)
