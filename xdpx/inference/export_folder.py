"""The files of an export folder beside the network: how to read raw text, the labels, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io
from xdpx.utils.storage import walk

FILE = "export.json"
"""Its table of contents; a folder with this file is an export, not a run."""
SET = "export"
"""Name of the manifest of its files: `export.manifest.json` lists them with their hashes."""
VERSION = 1
"""Format version of `FILE`."""
SMALL = 1 << 20
"""Size in bytes up to which a file is compared with its hash whenever a plan is made; others when they are opened."""
_ADVICE = "Export it again, or copy it again from its source."


def is_export(folder: str) -> bool:
    """Return whether a folder is an export, be it one that lost its table of contents."""
    return io.isfile(io.join(folder, FILE)) or io.isfile(io.join(folder, SET + commit.SUFFIX))


def read(folder: str) -> dict[str, Any]:
    """Return the table of contents of an export folder.

    Raises:
        ConfigError: it is missing, cannot be read, or was written in a newer format.
    """
    path = io.join(folder, FILE)
    if not io.isfile(path):
        problem = f"'{folder}' is an export, but its {FILE} is missing."
        raise ConfigError(path, [Fault("export", problem, _ADVICE)])
    try:
        with io.open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.loads(file.read())
        known = isinstance(found, dict) and int(found["version"]) <= VERSION
        known = known and isinstance(found["format"], str) and isinstance(found["file"], str)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(path, [Fault("export", f"cannot be read ({error}).", _ADVICE)]) from error
    if not known:
        problem = "was written by a newer xdpx, or is not a table of an export."
        raise ConfigError(path, [Fault("export", problem, "Update xdpx, or export it again.")])
    return found


def refuse_damaged(folder: str, *, whole: bool = True) -> None:
    """Raise OSError if a file of an export differs from what its manifest says.

    Args:
        folder: of the export.
        whole: read every byte. Without it large files, such as the network, are compared by their size alone.
    """
    found = commit.problems(folder, SET, hashes=True, largest=None if whole else SMALL)
    if found:
        raise OSError(f"{folder}: {' '.join(found)} {_ADVICE}")


def copy_files(folder: str, target: str) -> None:
    """Copy the files of an export, except its manifest, into another folder."""
    manifest = commit.read_manifest(folder, SET)
    for name in manifest.files if manifest is not None else ():
        io.makedirs(io.parent(io.join(target, name)))
        io.copy(io.join(folder, name), io.join(target, name))


def written_by_us(folder: str) -> Mapping[str, Any] | None:
    """Return the facts in the manifest of an export; None if the folder is not a complete export."""
    manifest = commit.read_manifest(folder, SET)
    return None if manifest is None else manifest.facts


def foreign_files(folder: str) -> list[str]:
    """Return the names of files in an export folder that are not part of the export, sorted."""
    manifest, place = commit.read_manifest(folder, SET), io.plain(folder)
    own = {SET + commit.SUFFIX, *(manifest.files if manifest else ())}
    names = (entry.path.removeprefix(place).lstrip("/") for entry in walk(io.store(folder), place))
    return sorted(set(names) - own)
