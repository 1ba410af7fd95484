"""Warn if the user's own modules are not those that a run was trained with, whose answers may then be others."""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from xdpx.checkpoints.layout import newest_snapshot
from xdpx.config.loading import Run
from xdpx.config.registry import REGISTRIES
from xdpx.config.user_modules import DEFAULT_FOLDER, folders
from xdpx.logger import log
from xdpx.utils import io

SO_OF_ANSWERS = "answers may differ from those that were scored then"
SO_OF_FINISHED = "it has finished and is not trained again; overwrite: true does that"


def warn_of_changes(folder: str, runs: Iterable[Run | None], *, so: str = SO_OF_ANSWERS) -> None:
    """Warn once for a folder if modules in user/modules differ from those that its snapshot keeps.

    Args:
        folder: of the run.
        runs: of training and preprocessing; without a class of the user in them nothing is compared.
        so: what that means, as the end of the sentence.
    """
    places = [place.resolve() for place in folders()]
    picks = {(kind, name) for run in runs if run is not None for (_, kind), name in run.picks.items()}
    if not any(_file_of(kind, name).parent in places for kind, name in picks):
        return
    snapshot = newest_snapshot(io.listdir(folder))
    kept = _kept_in(io.join(folder, snapshot)) if snapshot else {}
    now = {file.name: _checksum(file) for place in places for file in place.glob("*.py")}
    changed = sorted(name for name in kept.keys() & now.keys() if kept[name] != now[name])
    if changed:
        what = f"{', '.join(changed)} of {DEFAULT_FOLDER} changed since this run was trained ({snapshot} keeps it)"
        log.warning(f"{folder}: {what}; {so}", once=True)


def _file_of(kind: str, name: str) -> Path:
    """Return the file of a class that is not shipped; an empty path for others."""
    thing = REGISTRIES[kind].own().get(name) if kind in REGISTRIES else None
    module = sys.modules.get(getattr(thing, "__module__", ""))
    return Path(getattr(module, "__file__", None) or "")


def _kept_in(path: str) -> dict[str, int]:
    """Return {name: CRC-32} of the user's modules in a snapshot; {} if it cannot be read."""
    try:
        with io.open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            found = {each.filename.rpartition("/"): each.CRC for each in archive.infolist()}
    except (OSError, zipfile.BadZipFile):
        return {}
    return {name: checksum for (place, _, name), checksum in found.items() if place == DEFAULT_FOLDER}


def _checksum(file: Path) -> int:
    with io.open(str(file), "rb") as source:
        return zlib.crc32(source.read())
