"""Keep the code that trained a model beside the model: the package, the user's modules, the config."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from io import BytesIO

import xdpx
from xdpx.checkpoints.layout import newest_snapshot
from xdpx.config import families
from xdpx.config.config_files import kept
from xdpx.config.user_modules import folders
from xdpx.logger import log
from xdpx.utils import commit, io
from xdpx.utils.redaction import holds_secret
from xdpx.utils.storage import Entry

SNAPSHOT = "snapshot.zip"
PACKAGE = "xdpx/"
"""Prefix of the names of the package's own files in a snapshot."""
KEPT = (".py", ".hjson", ".json", ".yaml", ".yml", ".toml", ".txt", ".md", ".sh", ".cfg", ".typed", ".j2")
SKIPPED_FOLDERS = frozenset({"__pycache__", "venv", "env", "node_modules", "build", "dist"})
LARGEST_FILE = 1_000_000
LARGEST_SNAPSHOT = 100_000_000
COMPRESSION = 3
"""Level of deflate. Packing takes half the CPU seconds of the usual level 6, and the zip is a fifteenth larger."""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of zip: equal code gives equal bytes


def write_snapshot(
    path: str, *, config: str = "", more: Mapping[str, str] | None = None, unless: str | None = None
) -> list[str]:
    """Write a zip of the package, of the user's modules, and of the config file; return what was left out.

    Large files, everything beyond 100 MB in all, and files that seem to contain secrets (a snapshot is passed on with
    the model) are left out with a warning.

    Args:
        path: the zip.
        config: the config file; '' for none.
        more: {name in the zip: file} of what goes in as well.
        unless: another zip; if its content is the same, nothing is written.
    """
    secret = list[str]()
    found = list(_files(config))
    packed, total, own_left_out = _packed(_of_package(found))
    left_out = [*own_left_out]
    text = BytesIO(packed)
    with zipfile.ZipFile(text, "a", zipfile.ZIP_DEFLATED) as archive:
        others = [(name, file) for name, file, _ in found if not name.startswith(PACKAGE)]
        for name, file in (*others, *(more or {}).items()):
            size = io.size(file)
            if size > LARGEST_FILE or total + size > LARGEST_SNAPSHOT:
                left_out.append(name)
                continue
            data = _read(file)
            if holds_secret(io.name(name), data.decode("utf-8", "replace")):
                secret.append(name)
                continue
            total += size
            _add(archive, name, data)
    if unless is not None and io.md5(unless) == hashlib.md5(text.getbuffer(), usedforsecurity=False).hexdigest():
        return [*secret, *left_out]
    with commit.replacing(path, "wb", own=True, private=True) as target:
        target.write(text.getbuffer())
    if secret:
        log.warning(f"{', '.join(secret)}: may contain secrets, left out of {io.name(path)}")
    if left_out:
        log.warning(f"too large for {io.name(path)}, left out: {', '.join(left_out[:5])}{' ...' * (len(left_out) > 5)}")
    return [*secret, *left_out]


def pack_ahead() -> None:
    """Pack the package for the snapshots of this process, and of those that are forked off it."""
    _packed(_of_package(_files("")))


def _of_package(files: Iterable[tuple[str, str, str]]) -> tuple[tuple[str, str, str], ...]:
    return tuple(each for each in files if each[0].startswith(PACKAGE))


@lru_cache(maxsize=1)
def _packed(files: tuple[tuple[str, str, str], ...]) -> tuple[bytes, int, list[str]]:
    """Return a zip of the package, the bytes in it, and what was left out.

    Cached, because packing takes longer than a small run, and a loop of configs trains several in one process.

    Args:
        files: (name in the zip, file, tag that changes with the file).
    """
    packed, total, left_out = BytesIO(), 0, list[str]()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file, _ in files:
            data = _read(file)
            if len(data) > LARGEST_FILE or total + len(data) > LARGEST_SNAPSHOT:
                left_out.append(name)
                continue
            total += len(data)
            _add(archive, name, data)
    return packed.getvalue(), total, left_out


def _read(file: str) -> bytes:
    with io.open(file, "rb") as source:
        return bytes(source.read())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, COMPRESSION)


def write_changed_snapshot(folder: str, step: int, *, config: str) -> None:
    """Write the code of a resumed run as snapshot.resume-<step>.zip, if it differs from that in its newest snapshot."""
    name = f"snapshot.resume-{step}.zip"
    path = io.join(folder, name)
    before = newest_snapshot(each for each in io.listdir(folder) if each != name) or SNAPSHOT
    if io.exists(path):  # of code that was changed back since
        io.remove(path)
    write_snapshot(path, config=config, unless=io.join(folder, before))


def changed_files(folder: str) -> tuple[str, list[str]] | None:
    """Return the newest snapshot of a run, and which files of the package and the user's modules differ from it.

    Those that are only in one of both are named, too, but not those that a snapshot leaves out.

    Args:
        folder: of the run.

    Returns:
        (name of the snapshot, names of files, sorted); None if there is no readable snapshot.
    """
    newest = newest_snapshot(io.listdir(folder))
    if newest is None:
        return None
    try:
        with io.open(io.join(folder, newest), "rb") as file, zipfile.ZipFile(file) as archive:
            then = {name: archive.read(name) for name in archive.namelist() if not name.startswith("config/")}
    except (OSError, zipfile.BadZipFile):
        return None
    now = {}
    for name, path, _ in _files(""):
        if io.size(path) <= LARGEST_FILE:
            with io.open(path, "rb") as source:
                now[name] = source.read()
    changed = {name for name in now.keys() & then.keys() if now[name] != then[name]}
    gone = then.keys() - now.keys()
    new = {name for name in now.keys() - then.keys() if name.startswith(PACKAGE)}  # others may have held secrets
    return newest, sorted(changed | gone | new)


def _files(config: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name in the zip, file, tag that changes with the file), sorted, without what no text editor would open."""
    package = io.parent(io.abspath(str(xdpx.__file__)))
    users = [(io.abspath(str(folder)), "user/modules") for folder in folders()]
    shipped = [(families.folder(), "xdpx/families")] if families.folder() else []
    seen = set()
    for root, prefix in ((package, "xdpx"), *shipped, *users):
        for file in sorted(_text_files(root), key=lambda entry: entry.path):
            name = f"{prefix}{file.path[len(root) :]}"
            if name not in seen:
                seen.add(name)
                yield name, file.path, f"{file.size}-{file.tag}"
    for suffix in ("", ".hjson"):
        if config and io.isfile(kept(config + suffix)):
            yield f"config/{io.name(config + suffix)}", kept(config + suffix), ""
            return


def _text_files(folder: str) -> Iterator[Entry]:
    for entry in io.store(folder).children(folder) if io.isdir(folder) else []:
        name = io.name(entry.path)
        if name.startswith(".") or name in SKIPPED_FOLDERS:
            continue
        if entry.folder:
            yield from _text_files(entry.path)
        elif name.endswith(KEPT):
            yield entry
