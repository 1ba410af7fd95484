"""Publish a staged checkpoint folder under its final name, and remove old ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Any

from xdpx.utils import commit, io
from xdpx.utils.hashing import hash_of
from xdpx.utils.manifests import FileFacts, Manifest
from xdpx.utils.owners import new_owner_id, temporary_name
from xdpx.utils.storage import walk

SET = "checkpoint"
"""Commit name of the files of a checkpoint folder, listed by `checkpoint.manifest.json`."""
REPLACED = ".replaced"
PRUNED = ".pruned"
_read_back: set[str] = set()
HASHING_THREADS = 4
"""Number of threads that hash and sync, both without the GIL; more would only wait for the disk."""


def staging_of(parent: str, name: str, owner: str) -> str:
    """Return the local folder in which `owner` writes `<parent>/<name>`."""
    place = parent if io.islocal(parent) else io.cache.spool()
    return temporary_name(io.join(place, name), owner)


def publish(parent: str, name: str, owner: str, *, facts: Mapping[str, Any], kind: str = SET) -> None:
    """Publish the folder that `owner` staged. Raises OSError if it fails; an existing folder is unchanged then.

    Args:
        parent: of the folder, local or remote.
        name: final name of the folder.
        owner: id of the writer.
        facts: JSON values for the manifest.
        kind: commit name of the files; an existing manifest of this name, such as one to open the staged folder by, is
            replaced.
    """
    staged = staging_of(parent, name, owner)
    names = (entry.path.removeprefix(staged).lstrip("/") for entry in walk(io.local_files, staged))
    files = sorted(each for each in names if each != kind + commit.SUFFIX)
    if io.islocal(parent):
        with ThreadPoolExecutor(HASHING_THREADS) as pool:
            hashed = pool.map(lambda each: _sync_and_hash(io.join(staged, each)), files)
            of_files = dict(zip(files, hashed, strict=True))
        _publish_here(staged, io.join(parent, name), owner, Manifest(kind, of_files, facts, owner))
    else:
        with commit.Commit(io.join(parent, name), kind, facts=facts) as whole:
            for file_name in files:
                whole.adopt(file_name, io.join(staged, file_name))


def _sync_and_hash(path: str) -> FileFacts:
    with io.local_files.open(path, "rb") as file:
        facts = hash_of(file)
        io.local_files.sync(file)
    return facts


def _publish_here(staged: str, target: str, owner: str, manifest: Manifest) -> None:
    files = io.local_files
    for folder in sorted({str(folder) for name in manifest.files for folder in PurePath(name).parents}):
        files.sync_folder(io.join(staged, folder))
    # Only after all files that the manifest lists are on disk.
    files.write_whole(io.join(staged, manifest.name + commit.SUFFIX), manifest.to_bytes())
    files.sync_folder(staged)
    replaced = temporary_name(target + REPLACED, owner)
    if files.entry(target) is not None:
        files.rename(target, replaced)
    try:
        _give_name(staged, target, owner, manifest.name)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            files.rename(replaced, target)
        raise
    with contextlib.suppress(OSError):  # the new folder is complete; `recover` removes the old one at the next start
        remove_tree(replaced)
    files.sync_folder(os.path.dirname(target) or ".")
    _read_back.add(owner)


def was_read_back(owner: str) -> bool:
    """Return whether this process published a local folder as this owner, whose hashes it read from the files."""
    return owner in _read_back


def _give_name(staged: str, target: str, owner: str, kind: str) -> None:
    try:
        io.local_files.rename(staged, target)
    except FileNotFoundError:
        found = commit.read_manifest(target, kind)
        if found is None or found.id != owner:  # otherwise another process took this one for dead and renamed it
            raise


def discard(path: str) -> None:
    """Remove a checkpoint folder atomically: it is never found half removed."""
    if io.islocal(path):
        pruned = temporary_name(path + PRUNED, new_owner_id())
        io.local_files.rename(path, pruned)
        io.local_files.sync_folder(os.path.dirname(path) or ".")
        remove_tree(pruned)
    else:
        commit.discard(path, SET)
        remove_tree(path)


def remove_tree(path: str) -> None:
    """Remove a folder and its content; does nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        io.remove(path)
