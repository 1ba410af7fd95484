"""The checkpoint folders of an experiment, `checkpoints/checkpoint_<step:08d>/`: which there are, are whole, may go."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from xdpx.checkpoints import folders
from xdpx.checkpoints.folders import ALONE, NewestCheckpoint, Ranks
from xdpx.checkpoints.retention import prune, shelf_of_folders
from xdpx.logger import log
from xdpx.utils import io
from xdpx.utils.paths import StrPath

FORMAT = "xdpx-spmd-state-1"
PARENT = "checkpoints"
"""The folder of a job that holds its checkpoints."""
STATE, METADATA, INPUTS = "state", "metadata", "train_input"
"""In a checkpoint: the tensors, as Orbax writes them; what they are, as JSON; where each process was in its input."""

_NAME = re.compile(r"checkpoint_(\d{8,})")
_verified: set[str] = set()


class DamagedCheckpoint(OSError):
    """A checkpoint folder is not what was written."""


def folder_name(step: int) -> str:
    """Return the name of the checkpoint folder of a step."""
    return f"checkpoint_{step:08d}"


def step_of(name: str) -> int | None:
    """Return the step that a folder is the checkpoint of; None when the name is no such folder's."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def input_file(index: int, count: int) -> str:
    """Return the name, within a checkpoint, of the file that says where a process was in its input."""
    return f"{INPUTS}/process_{index}-of-{count}"


def steps(parent: StrPath) -> list[int]:
    """Return the steps that have a checkpoint folder, whole or not, lowest first."""
    return folders.steps(parent, naming=step_of)


def recover(parent: StrPath) -> None:
    """Finish what dead writers had written whole, and remove the rest of what they left; on one process."""
    folders.recover(parent, naming=step_of)


def newest(parent: StrPath, *, ranks: Ranks = ALONE) -> str | None:
    """Return the newest checkpoint that can be trusted, every byte of it; on all processes, which get the same.

    Each one that is passed over is named in the log, with the reason.
    """
    found = find(parent) if ranks.rank == 0 else NewestCheckpoint(None)
    for reason in found.skipped:
        log.warning(f"Not used: {reason}")
    path = ranks.broadcast(found.path)
    return None if path is None else str(path)


def find(parent: StrPath) -> NewestCheckpoint:
    """Look for the newest checkpoint, as `newest` does, on this process, and return the reasons instead of logging."""
    place = io.plain(parent)
    recover(place)
    skipped: list[str] = []
    for step in reversed(steps(place)):
        path = io.join(place, folder_name(step))
        faults = problems(path)
        if not faults:
            return NewestCheckpoint(path, tuple(skipped))
        skipped.append(f"{path}: {' '.join(faults)}")
    return NewestCheckpoint(None, tuple(skipped))


def problems(folder: StrPath) -> list[str]:
    """Return what is damaged in a checkpoint; an empty list means that each byte is what was written.

    What was found whole once is only looked at for its files and their sizes.
    """
    manifest = folders.manifest_of(folder)
    if manifest is None:
        return [f"{folders.MANIFEST}: is missing or damaged, so nothing says what was written."]
    faults = folders.check(folder, hashes=manifest.id not in _verified)
    if not faults:
        _verified.add(manifest.id)
    return faults


def verify(folder: StrPath, *, ranks: Ranks = ALONE) -> None:
    """Compare every byte with what was written; the first process does it for all.

    Raises:
        DamagedCheckpoint: names each file that differs.
    """
    faults = ranks.broadcast(problems(folder) if ranks.rank == 0 else None)
    if faults:
        raise DamagedCheckpoint(f"{folder}: {' '.join(faults)} Use another checkpoint, or copy it again.")


def read_metadata(folder: StrPath) -> dict[str, Any]:
    """Return what a checkpoint says of itself: step, tensors with shapes and types, facts.

    Raises:
        FileNotFoundError: it is no checkpoint of ours.
        DamagedCheckpoint: it says something else than this version understands.
    """
    path = io.join(io.plain(folder), METADATA)
    with io.open(path) as file:
        text = file.read()
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedCheckpoint(f"{path}: is no JSON ({error}). Use another checkpoint.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DamagedCheckpoint(f"{path}: is of another format; this version reads '{FORMAT}'.")
    return found


def read_shapes(folder: StrPath) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return (shape, type) of each tensor in a checkpoint, by name. Neither tensors nor jax are touched."""
    tensors = read_metadata(folder)["tensors"]
    return {name: (tuple(facts["shape"]), facts["dtype"]) for name, facts in tensors.items()}


def read_train_input(folder: StrPath, index: int, count: int) -> Any:
    """Return what process `index` of `count` said of its input; None when nothing was kept.

    Raises:
        ValueError: it was made by another number of processes, so positions cannot be handed out as they are.
    """
    place = io.plain(folder)
    path = io.join(place, input_file(index, count))
    if io.isfile(path):
        with io.open(path) as file:
            return json.load(file)
    others = io.listdir(io.join(place, INPUTS)) if io.isdir(io.join(place, INPUTS)) else []
    if not others:
        return None
    raise ValueError(
        f"{place}: holds the input positions {', '.join(others)}, but this is process {index} of {count}. Continue "
        "with as many processes as before, or read their files and reshard the input."
    )


def rotate(
    parent: StrPath, *, keep_last: int | None, current: int | None = None, pinned: Collection[int] = ()
) -> list[str]:
    """Delete checkpoints that need not stay, as `retention.prune` does; return their paths.

    Args:
        parent: their folder.
        keep_last: how many of the newest stay; None or 0 keeps all.
        current: the step that was just saved, by default the highest.
        pinned: steps that stay in any case.
    """
    if not keep_last:
        return []
    place = io.plain(parent)
    shelf = shelf_of_folders(place, naming=folder_name, steps=steps(place), faults=problems)
    return prune(shelf, lambda order: {*order[-keep_last:], *pinned}, newest=current)
