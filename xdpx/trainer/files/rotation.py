"""Keep as many checkpoints as asked for: always the newest, the newest finite, the best, and one to continue from."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, islice

from xdpx.checkpoints import folders
from xdpx.checkpoints.publishing import discard, in_order, once_safe, was_read_back
from xdpx.logger import log
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
    """Delete the oldest checkpoints until `limit` are left; call it on one process per disk.

    Nothing is deleted before the newest has been read back and compared with its hashes. Steps decide what is old.
    Those beyond `current` belong to an earlier run, or were damaged when this one was resumed: they go first.

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
    doomed = surplus(place, limit=limit, current=current, best=best, busy=busy)
    return [path for path in once_safe(doomed, lambda: _faults_of_newest(place, current)) if _deleted(path)]


def _faults_of_newest(place: str, current: int | None) -> list[str]:
    newest = io.join(place, folders.folder_name(_order(place, current)[-1]))
    manifest = folders.manifest_of(newest)
    faults = folders.check(newest, hashes=manifest is None or not was_read_back(manifest.id))
    if faults:
        log.warning(f"No checkpoint was deleted, because the newest cannot be trusted: {newest}: {' '.join(faults)}")
    return faults


def surplus(
    parent: StrPath,
    *,
    limit: int | None,
    current: int | None = None,
    best: str | None = None,
    busy: Collection[str] = (),
) -> list[str]:
    """Return the paths that `rotate` would delete, in its order."""
    place = io.plain(parent)
    order = [io.join(place, folders.folder_name(step)) for step in _order(place, current)]
    if not limit or limit < 0 or len(order) <= limit:
        return []
    kept = {order[-1], *_newest_resumable(order), *_newest_finite(order)} | {
        path for path in order if io.name(path) == _name_in(best, place)
    }
    excess = len(order) - max(limit, len(kept))
    held = kept | {io.plain(path) for path in busy}
    return [path for path in order if path not in held][: max(0, excess)]


def _order(place: str, current: int | None) -> list[int]:
    return in_order(folders.steps(place), current)


def _newest_resumable(order: list[str]) -> list[str]:
    return next(([path] for path in reversed(order) if not folders.missing_parts(path)), [])


def _newest_finite(order: list[str]) -> list[str]:
    """Return the newest whose weights are finite, and the newest of these to continue from: one, as a rule."""
    finite = (path for path in reversed(order) if folders.is_finite(path))
    found = list(islice(finite, 1))
    return found + list(islice((path for path in chain(found, finite) if not folders.missing_parts(path)), 1))


def _name_in(path: str | None, place: str) -> str:
    """Return the name of a checkpoint when it lies in `place`, also when its path was written in another way."""
    if not path or io.abspath(io.parent(io.abspath(path))) != io.abspath(place):
        return ""
    return io.name(path)


def _deleted(path: str) -> bool:
    try:
        discard(path)
    except FileNotFoundError:
        return False  # somebody else did
    except OSError as error:
        log.warning(f"{path}: could not be deleted ({error.strerror or error}).")
        return False
    return True
