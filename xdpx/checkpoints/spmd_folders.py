"""Checkpoint folders of an experiment, `checkpoints/checkpoint_<step:08d>/`: list, verify, read and delete them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from xdpx.checkpoints import folders
from xdpx.checkpoints.folders import ALONE, DamagedCheckpoint, NewestCheckpoint, Ranks
from xdpx.checkpoints.retention import prune, shelf_of_folders
from xdpx.logger import log
from xdpx.utils import io
from xdpx.utils.paths import StrPath

FORMAT = "xdpx-spmd-state-1"
PARENT = "checkpoints"
"""The folder of a job that holds its checkpoints."""
STATE, METADATA, INPUTS = "state", "metadata", "train_input"
"""Names in a checkpoint: tensors, written by Orbax; their shapes and types, as JSON; each process's input position."""

_NAME = re.compile(r"checkpoint_(\d{8,})")
_verified: set[str] = set()


def folder_name(step: int) -> str:
    """Return the name of the checkpoint folder of a step."""
    return f"checkpoint_{step:08d}"


def step_of(name: str) -> int | None:
    """Return the step in the name of a checkpoint folder; None for other names."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def input_file(index: int, count: int) -> str:
    """Return the path, within a checkpoint, of the file with a process's position in its input."""
    return f"{INPUTS}/process_{index}-of-{count}"


def steps(parent: StrPath) -> list[int]:
    """Return the steps that have a checkpoint folder, complete or not, ascending."""
    return folders.steps(parent, naming=step_of)


def written(parent: StrPath) -> list[int]:
    """Return the steps whose checkpoint was written to the end, damaged or not, ascending.

    An object store also lists folders whose upload was cut off; they have no manifest, which is uploaded last.
    """
    place = io.plain(parent)
    manifests = {step: io.join(place, folder_name(step), folders.MANIFEST) for step in steps(place)}
    return [step for step, manifest in manifests.items() if io.islocal(place) or io.exists(manifest)]


def recover(parent: StrPath) -> None:
    """Publish folders that dead processes had written completely, and remove incomplete ones; call on one process."""
    folders.recover(parent, naming=step_of)


def newest(parent: StrPath, *, ranks: Ranks = ALONE) -> str | None:
    """Return the newest checkpoint that matches its hashes; call it on all processes, which get the same path.

    Each one that is skipped is logged with the reason.
    """
    found = find(parent) if ranks.rank == 0 else NewestCheckpoint(None)
    for reason in found.skipped:
        log.warning(f"Not used: {reason}")
    path = ranks.broadcast(found.path)
    return None if path is None else str(path)


def find(parent: StrPath) -> NewestCheckpoint:
    """Find the newest checkpoint like `newest`, on this process only, and return the reasons instead of logging."""
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
    """Return the problems of a checkpoint; none if all files match their hashes.

    After a checkpoint was verified once by this process, only existence and sizes of its files are checked.
    """
    manifest = folders.manifest_of(folder)
    if manifest is None:
        return [f"{folders.MANIFEST}: is missing or damaged, so nothing says what was written."]
    faults = folders.check(folder, hashes=manifest.id not in _verified)
    if not faults:
        _verified.add(manifest.id)
    return faults


def verify(folder: StrPath, *, ranks: Ranks = ALONE) -> None:
    """Verify the hashes of a checkpoint, on rank 0 for all processes.

    Raises:
        DamagedCheckpoint: files are missing or differ; each is named.
    """
    faults = ranks.broadcast(problems(folder) if ranks.rank == 0 else None)
    if faults:
        raise DamagedCheckpoint(f"{folder}: {' '.join(faults)} Use another checkpoint, or copy it again.")


def read_metadata(folder: StrPath) -> dict[str, Any]:
    """Return the metadata of a checkpoint: step, tensors with shapes and types, facts.

    Raises:
        FileNotFoundError: the folder has no metadata.
        DamagedCheckpoint: the metadata are damaged or of another format.
    """
    path = io.join(io.plain(folder), METADATA)
    with io.open(path) as file:
        text = file.read()
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedCheckpoint(f"{path}: is not JSON ({error}). Use another checkpoint.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DamagedCheckpoint(f"{path}: has another format; this version reads '{FORMAT}'.")
    return found


def read_shapes(folder: StrPath) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return (shape, type) of each tensor in a checkpoint, by name, without reading tensors or importing jax."""
    tensors = read_metadata(folder)["tensors"]
    return {name: (tuple(facts["shape"]), facts["dtype"]) for name, facts in tensors.items()}


def read_train_input(folder: StrPath, index: int, count: int) -> Any:
    """Return the input position of process `index` of `count`; None if the checkpoint has no positions.

    Raises:
        ValueError: the checkpoint was made by another number of processes.
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
    """Delete old checkpoints as `retention.prune` does, and return their paths.

    Args:
        parent: folder of the checkpoints.
        keep_last: number of the newest checkpoints to keep; None or 0 keeps all.
        current: the step that was just saved, by default the highest.
        pinned: further steps to keep.
    """
    if not keep_last:
        return []
    place = io.plain(parent)
    shelf = shelf_of_folders(place, naming=folder_name, steps=steps(place), faults=problems)
    return prune(shelf, lambda order: {*order[-keep_last:], *pinned}, newest=current)
