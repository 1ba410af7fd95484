"""The list that makes a set of files count: name, size and SHA-256 of each, guarded against flipped bits itself."""

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
    """What a file must be: `size` in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


class DamagedManifest(ValueError):
    """A manifest that is there, but is not what was written."""


@dataclass(frozen=True)
class Manifest:
    """One committed set of files, with the `facts` its writer gave. `id` names the writing process and this commit."""

    name: str
    files: Mapping[str, FileFacts]
    facts: Mapping[str, Any]
    id: str
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def to_bytes(self) -> bytes:
        """Write it as JSON that ends with a check of itself. Raises TypeError for facts that JSON cannot hold."""
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
        """Read what `to_bytes` wrote. Raises DamagedManifest when a single bit differs."""
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
    """Tell whether the name of a file leads out of the folder that it is looked for in."""
    return not name or name.startswith("/") or ".." in name.split("/")


def _render(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _check(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_render(body)).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions that may matter to these files, without importing anything for it."""
    found = {"python": platform.python_version()}
    for name in _REPORTED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found
