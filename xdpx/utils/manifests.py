"""Manifests: the list of names, sizes and hashes that marks a set of files as complete, with a checksum of its own."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

_REPORTED = ("xdpx", "torch", "jax", "transformers", "numpy")


class FileFacts(NamedTuple):
    """The expected `size` of a file in bytes, and its SHA-256 in hex."""

    size: int
    sha256: str


class DamagedManifest(ValueError):
    """The content of a manifest is not what was written."""


@dataclass(frozen=True)
class Manifest:
    """The description of one committed set of files.

    Attributes:
        name: of the set.
        files: relative path -> size and hash.
        facts: the writer's own, JSON-serialisable.
        id: owner id of the writing process, unique to this commit.
        created: ISO 8601, UTC.
        versions: of Python and of the imported libraries.
    """

    name: str
    files: Mapping[str, FileFacts]
    facts: Mapping[str, Any]
    id: str
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def to_bytes(self) -> bytes:
        """Return JSON that ends with its own checksum. Raises TypeError for facts that are not JSON-serialisable."""
        body = {
            "name": self.name,
            "files": {name: facts._asdict() for name, facts in sorted(self.files.items())},
            "facts": dict(self.facts),
            "id": self.id,
            "created": self.created,
            "versions": dict(self.versions),
        }
        return _render({**body, "check": _check(body)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest that `to_bytes` wrote.

        Raises:
            DamagedManifest: the checksum does not match, or a file is outside of the folder.
        """
        try:
            body = json.loads(data)
            check = body.pop("check")
            if check != _check(body) or data != _render({**body, "check": check}):
                raise DamagedManifest("its check does not agree with its content")
            files = {name: FileFacts(**facts) for name, facts in body.pop("files").items()}
            if any(leads_out(name) for name in files) or "/" in body["id"]:
                raise DamagedManifest("it names files outside of its folder")
            return cls(files=files, **body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedManifest(f"it cannot be read ({error})") from error


def leads_out(name: str) -> bool:
    """Return whether a relative path is empty, absolute, or leaves its folder by `..`."""
    return not name or name.startswith("/") or ".." in name.split("/")


def _render(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _check(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_render(body)).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of those libraries in `_REPORTED` that are already imported."""
    found = {"python": platform.python_version()}
    for name in _REPORTED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found
