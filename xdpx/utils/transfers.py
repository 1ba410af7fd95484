"""Copy, move and remove files between any two storages. Each file is written atomically, in bounded memory."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from xdpx.utils.owners import temporary_name
from xdpx.utils.progress import ProgressBar
from xdpx.utils.read_cache import download
from xdpx.utils.redaction import redact
from xdpx.utils.storage import Entry, walk

if TYPE_CHECKING:
    from xdpx.utils.paths import StrPath
    from xdpx.utils.places import Storages
    from xdpx.utils.remote_filesystems import RemoteFiles

BLOCK = 4 << 20
SHOW_FROM = 100 << 20
"""Size in bytes from which copies show a bar."""


def copy(io: Storages, source: StrPath, target: StrPath) -> None:
    """Copy one file. Raises IsADirectoryError for a folder, OSError if source and target are the same file."""
    entry = _must_be(io, source)
    if entry.folder:
        raise IsADirectoryError(errno.EISDIR, "Is a folder; copytree copies folders", os.fspath(source))
    target = _into(io, target, io.name(source))
    if _same(io, source, target):
        raise OSError(errno.EINVAL, "Source and target are the same file", os.fspath(source))
    _copy_file(io, entry, target)


def copytree(io: Storages, source: StrPath, target: StrPath) -> None:
    """Copy a folder with everything below it. Raises NotADirectoryError for a file, OSError for a copy into itself."""
    top, place = _must_be(io, source), io.plain(target)
    if not top.folder:
        raise NotADirectoryError(errno.ENOTDIR, "Is a file; copy copies files", os.fspath(source))
    if io.join(io.abspath(place), "").startswith(io.join(io.abspath(top.path), "")):
        raise OSError(errno.EINVAL, "A folder cannot be copied into itself", place)
    io.makedirs(place)
    for entry in list(_folders(io, top)):
        io.makedirs(io.join(place, _within(top, entry)))
    for entry in list(walk(io.store(source), top.path)):
        _copy_file(io, entry, io.join(place, _within(top, entry)))


def move(io: Storages, source: StrPath, target: StrPath) -> None:
    """Move a file or folder: rename it if possible, else copy it completely and then remove the source."""
    entry = _must_be(io, source)
    target = _into(io, target, io.name(source))
    if _same(io, source, target):
        return
    if io.islocal(source) and io.islocal(target) and _renamed(io, entry.path, target):
        return
    if entry.folder:
        copytree(io, source, target)
        rmtree(io, source)
    else:
        _copy_file(io, entry, target)
        io.store(source).delete(entry.path)


def remove(io: Storages, path: StrPath) -> None:
    """Remove a file, a symlink, or a folder with everything below it."""
    place = io.plain(path)
    if io.islocal(place) and os.path.islink(place):
        io.local_files.unlink(place)
    elif _must_be(io, path).folder:
        rmtree(io, path)
    else:
        io.store(path).delete(place)


def rmtree(io: Storages, path: StrPath) -> None:
    """Remove a folder with everything below it; of symlinks in it, only the links.

    Raises:
        NotADirectoryError: it is a file or a symlink.
        PermissionError: it is or holds the user's home or the working directory, or is a whole bucket.
    """
    top, store = _must_be(io, path), io.remote(path) or io.local_files
    if not top.folder:
        raise NotADirectoryError(errno.ENOTDIR, "Is a file; remove removes files", os.fspath(path))
    if _holds_too_much(io, top.path):
        what = "the working directory, the home, what holds them, or a bucket"
        raise PermissionError(errno.EPERM, f"Refused to remove {what}", os.fspath(path))
    if io.islocal(path) and os.path.islink(top.path):
        raise NotADirectoryError(errno.ENOTDIR, "Is a link; remove removes it alone", os.fspath(path))
    _empty(io, top.path)
    with contextlib.suppress(FileNotFoundError):
        store.remove_folder(top.path)


def _empty(io: Storages, folder: str) -> None:
    store = io.remote(folder) or io.local_files
    names = [entry.path for entry in store.children(folder)]
    if io.islocal(folder):
        names = [os.path.join(folder, name) for name in os.listdir(folder)]  # broken links as well
    for path in names:
        entry = store.entry(path)
        if entry is not None and entry.folder and not (io.islocal(path) and os.path.islink(path)):
            _empty(io, path)
            with contextlib.suppress(FileNotFoundError):
                store.remove_folder(path)
        else:
            store.delete(path)


def try_writing(io: Storages, path: StrPath) -> str:
    """Return why no file can be written at `path`, '' if one can, by writing one nearby; creates no folder."""
    try:
        probe = temporary_name(io.join(_folder_to_try(io, io.abspath(path)), "probe"))
        io.store(probe).put(probe, b"probe")
        io.store(probe).delete(probe)
    except OSError as error:
        return str(error.strerror or error) or type(error).__name__
    return ""


def _folder_to_try(io: Storages, place: str) -> str:
    store = io.remote(place)
    if store is not None:
        store.must_write(place)
        return io.parent(place) if io.isfile(place) else place
    if io.isfile(place) and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
    folder = place if io.isdir(place) else io.parent(place)
    while not io.exists(folder) and io.parent(folder) != folder:
        folder = io.parent(folder)
    return folder


# ---- one file


def _copy_file(io: Storages, source: Entry, target: str) -> None:
    from_store, to_store = io.remote(source.path), io.remote(target)
    if to_store is None:
        _copy_here(io, source, target)
    elif from_store is to_store:
        to_store.copy_within(source.path, target)
    elif from_store is None:
        _upload(to_store, source.path, target, size=source.size)
    else:
        with _spooled(io, from_store, source) as local_copy:
            _upload(to_store, local_copy, target, size=source.size)


def _copy_here(io: Storages, source: Entry, target: str) -> None:
    files, store = io.local_files, io.remote(source.path)
    files.make_folder(os.path.dirname(target))
    with files.beside(target) as temporary:
        with files.open(temporary, "wb") as file:
            if store is None:
                _pour(io, source, file)
            else:
                download(store, source, file, show_from=SHOW_FROM)
            files.sync(file)
        if store is None:
            files.copy_mode(source.path, temporary)


def _pour(io: Storages, source: Entry, target: Any) -> None:
    shown = (source.size or 0) >= SHOW_FROM
    with (
        io.local_files.open(source.path) as file,
        ProgressBar[Any](total=source.size, what=f"copying {source.path}", unit="B", shown=shown) as bar,
    ):
        while block := file.read(BLOCK):
            target.write(block)
            bar.update(len(block))


def _upload(store: RemoteFiles, local_path: str, target: str, *, size: int | None) -> None:
    shown = (size or 0) >= SHOW_FROM
    with ProgressBar[Any](total=size, what=f"writing {redact(target)}", unit="B", shown=shown) as bar:
        store.upload(local_path, target, bar.update)


@contextlib.contextmanager
def _spooled(io: Storages, store: RemoteFiles, source: Entry) -> Generator[str]:
    local_copy = temporary_name(os.path.join(io.cache.spool(), "copy"))
    try:
        with io.local_files.open(local_copy, "wb") as file:
            download(store, source, file, show_from=SHOW_FROM)
        yield local_copy
    finally:
        with contextlib.suppress(OSError):
            io.local_files.unlink(local_copy)


# ---- relations of paths


def _must_be(io: Storages, path: StrPath) -> Entry:
    place = io.plain(path)
    entry = io.store(path).entry(place)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return Entry(place, entry.folder, entry.size, entry.modified, entry.tag)


def _into(io: Storages, target: StrPath, name: str) -> str:
    place = io.plain(target)
    if os.fspath(target).endswith("/") or io.isdir(place):
        return io.join(place, name)
    return place


def _same(io: Storages, one: StrPath, other: StrPath) -> bool:
    first, second = io.abspath(one), io.abspath(other)
    if first == second:
        return True
    both_here = io.islocal(first) and io.islocal(second) and io.exists(second)
    return both_here and os.path.samefile(first, second)


def _renamed(io: Storages, source: str, target: str) -> bool:
    io.local_files.make_folder(os.path.dirname(target))
    try:
        io.local_files.rename(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _folders(io: Storages, top: Entry) -> Iterator[Entry]:
    for entry in io.store(top.path).children(top.path):
        if entry.folder:
            yield entry
            yield from _folders(io, entry)


def _within(top: Entry, entry: Entry) -> str:
    """Return the path of an entry below a folder.

    Raises:
        OSError: an object store has a name with `..` there, which on a disk would lead out of the folder.
    """
    path = entry.path.removeprefix(top.path).lstrip("/")
    if ".." in path.split("/"):
        raise OSError(errno.EINVAL, "Is named '..', which leads out of the folder; rename it", redact(entry.path))
    return path


def _holds_too_much(io: Storages, path: str) -> bool:
    if not io.islocal(path):
        return "/" not in path.partition("://")[2].strip("/")
    place, kept = os.path.realpath(path), [os.path.realpath(os.path.expanduser("~"))]
    with contextlib.suppress(FileNotFoundError):  # another process has removed it
        kept.append(os.getcwd())
    return any(os.path.commonpath([place, each]) == place for each in kept)
