"""The base of `io`: which storage a path belongs to, and whether a file or folder exists there."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from xdpx.utils.local_files import LocalFiles
from xdpx.utils.paths import Paths, StrPath
from xdpx.utils.redaction import redact
from xdpx.utils.storage import Entry, Storage, scheme_of

if TYPE_CHECKING:
    from xdpx.utils.oss import OSS
    from xdpx.utils.read_cache import ReadCache
    from xdpx.utils.remote_filesystems import RemoteFiles

_ONE_SLASH = re.compile(r"(s3a?|oss|gs|gcs|https?|memory):/(?!/)")


class Storages(Paths):
    """The storages of this process: local disks, and one per remote scheme, created on first use."""

    def __init__(self) -> None:
        self.local_files = LocalFiles()
        self._remotes: dict[str, RemoteFiles] = {}
        self._oss: OSS | None = None
        self._before_remote: Callable[[], object] | None = None

    def when_remote(self, prepare: Callable[[], object]) -> None:
        """Register a function to be called once, before the first remote storage is opened, e.g. to set credentials."""
        self._before_remote = prepare

    def set_io(self, oss: OSS) -> None:
        """Set the credentials for all `oss://` paths of this process; to be called from user/modules/*.py."""
        from xdpx.utils.oss import OSS

        if not isinstance(oss, OSS):
            raise TypeError(f"io.set_io takes an OSS(access_key_id, access_key_secret, region_bucket), not {oss!r}.")
        self._oss = oss
        self._remotes.pop("oss", None)

    def remote(self, path: StrPath) -> RemoteFiles | None:
        """Return the remote storage of `path`, or None for a local path.

        Raises:
            OSError: it is remote, but lacks a slash, so that a local folder called `s3:` would be meant.
        """
        scheme = scheme_of(os.fspath(path))
        if not scheme:
            _refuse_one_slash(os.fspath(path))
            return None
        if scheme not in self._remotes:
            prepare, self._before_remote = self._before_remote, None
            if prepare is not None:
                prepare()
            self._remotes[scheme] = self._open_storage(scheme)
        return self._remotes[scheme]

    def store(self, path: StrPath) -> Storage:
        """Return the storage of `path`, local or remote."""
        return self.remote(path) or self.local_files

    @property
    def cache(self) -> ReadCache:
        """The cache of local copies of remote files."""
        from xdpx.utils.read_cache import ReadCache

        return ReadCache(self.local_files)

    def _open_storage(self, scheme: str) -> RemoteFiles:
        if scheme == "oss":
            from xdpx.utils.oss import OssFiles

            return OssFiles(scheme, files=lambda: self.local_files, oss=self._oss, spool=lambda: self.cache.spool())
        from xdpx.utils.remote_filesystems import RemoteFiles

        return RemoteFiles(scheme, files=lambda: self.local_files)

    # ---- existence

    def _entry(self, path: StrPath) -> Entry:
        entry = self.store(path).entry(self.plain(path))
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return entry

    def exists(self, path: StrPath) -> bool:
        """Return whether a file or folder exists at `path`."""
        return self.store(path).entry(self.plain(path)) is not None

    def isfile(self, path: StrPath) -> bool:
        """Return whether a file exists at `path`."""
        entry = self.store(path).entry(self.plain(path))
        return entry is not None and not entry.folder

    def isdir(self, path: StrPath) -> bool:
        """Return whether a folder exists at `path`; on an object store, whether any file is below it."""
        entry = self.store(path).entry(self.plain(path))
        return entry is not None and entry.folder

    def makedirs(self, path: StrPath, exist_ok: bool = True) -> None:
        """Create a folder and its parents. On object stores, which have no folders, it only checks `exist_ok`."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        store = self.remote(path) or self.local_files
        store.make_folder(self.plain(path))


def _refuse_one_slash(path: str) -> None:
    """Raise OSError for `s3:/bucket/run`, which is what pathlib.Path makes of `s3://bucket/run`."""
    found = _ONE_SLASH.match(path)
    if found is not None:
        remedy = f"Write {found[1]}://{path[found.end() :]}; as text, because pathlib.Path drops a slash."
        problem = f"has one slash after '{found[1]}:', so it would be a local folder of that name. {remedy}"
        raise OSError(f"{redact(path)}: {problem}") from ValueError(problem)
