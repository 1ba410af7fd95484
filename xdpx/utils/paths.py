"""Split and join paths, local or remote."""

from __future__ import annotations

import os

from xdpx.utils.storage import scheme_of

StrPath = str | os.PathLike[str]


class Paths:
    """Path operations that do not access any file."""

    def islocal(self, path: StrPath) -> bool:
        """Return whether `path` is local, i.e. has no remote scheme."""
        return not scheme_of(os.fspath(path))

    def plain(self, path: StrPath) -> str:
        """Return a path in the form that storages take: `~` and `file://` resolved, without a trailing slash."""
        text = os.fspath(path)
        scheme = scheme_of(text)
        if scheme:
            rest = text.partition("://")[2]
            return f"{scheme}://{rest if scheme.startswith('http') else rest.rstrip('/')}"
        if text[:8].lower().startswith(("file://", "local://")):
            text = text.partition("://")[2]
        if text == "~" or text.startswith("~/"):
            text = os.path.expanduser(text)
        return text.rstrip("/") or ("/" if text.startswith("/") else text)

    def abspath(self, path: StrPath) -> str:
        """Return the absolute form of a local path, symlinks not resolved; a remote path unchanged."""
        text = self.plain(path)
        return os.path.abspath(text) if self.islocal(text) else text

    def join(self, base: StrPath, *names: StrPath) -> str:
        """Return the folder and names joined; an absolute name (`/…`, `s3://…`) replaces everything before it."""
        result = os.fspath(base)
        for part in names:
            name = os.fspath(part)
            result = name if scheme_of(name) else os.path.join(result, name)
        return result

    def parent(self, path: StrPath) -> str:
        """Return the parent folder of a path; empty for a bare local name, the bucket itself for a bucket."""
        text = self.plain(path)
        if self.islocal(text):
            return os.path.dirname(text)
        scheme, _, rest = text.partition("://")
        rest = rest.rstrip("/")
        return f"{scheme}://{rest.rpartition('/')[0] or rest}"

    def name(self, path: StrPath) -> str:
        """Return the last part of a path."""
        return self.plain(path).rstrip("/").rpartition("/")[2]
