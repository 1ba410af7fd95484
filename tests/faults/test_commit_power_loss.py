"""The power fails at any moment, and the disk keeps only what was synced: an announced commit is still there.

The disk is played back from a log of operations. What was not synced is lost, torn or kept, and names that were not
synced with their folder are there or not, in every combination.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from xdpx.utils import io
from xdpx.utils.commit import Commit, problems, read_manifest
from xdpx.utils.local_files import LocalFiles

OLD, NEW = {"a": b"old a", "b": b"old b"}, {"a": b"the NEW a", "b": b"the NEW b"}


@dataclass
class Disk:
    """What is safe (`kept`), and what the operating system still owes (`owed` names, `written` content)."""

    names: dict[str, int] = field(default_factory=dict)  # as programs see them: path -> file number
    kept: dict[str, int] = field(default_factory=dict)  # as the disk has them
    owed: list[tuple[str, str, int]] = field(default_factory=list)  # not synced yet: (old name, new name, file number)
    content: list[bytes] = field(default_factory=list)
    synced: list[bytes] = field(default_factory=list)

    def new(self, path: str) -> None:
        self.names[path] = len(self.content)
        self.content.append(b"")
        self.synced.append(b"")
        self.owed.append(("", path, self.names[path]))

    def write(self, path: str, data: bytes) -> None:
        self.content[self.names[path]] += data

    def sync(self, path: str) -> None:
        self.synced[self.names[path]] = self.content[self.names[path]]

    def rename(self, old: str, new: str) -> None:
        self.names[new] = self.names.pop(old)
        self.owed.append((old, new, self.names[new]))

    def sync_folder(self) -> None:
        self.kept, self.owed = dict(self.names), []

    def images(self) -> Iterator[dict[str, bytes]]:
        """Yield every state that may be found after the power failed now."""
        for kept_changes in itertools.product([False, True], repeat=len(self.owed)):
            names = dict(self.kept)
            for (old, new, number), is_kept in zip(self.owed, kept_changes, strict=True):
                if is_kept:
                    names.pop(old, None)
                    names[new] = number
            for part in (0.0, 0.5, 1.0):
                yield {path: self.after_failure(number, part) for path, number in names.items()}

    def after_failure(self, number: int, part: float) -> bytes:
        safe, whole = self.synced[number], self.content[number]
        return safe + whole[len(safe) :][: int(part * (len(whole) - len(safe)))]


class LoggedFile:
    """A file whose writes are logged."""

    def __init__(self, file: IO[Any], path: str, log: list[tuple[Any, ...]]) -> None:
        self._file, self.path, self._log = file, path, log

    def write(self, data: Any) -> int:
        self._log.append(("write", self.path, bytes(data)))
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> LoggedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class LoggedFiles(LocalFiles):
    """The local disk, with a log of what a power failure could undo."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def open(self, path: str, mode: str = "rb", **text: Any) -> Any:
        file = super().open(path, mode, **text)
        if "w" not in mode:
            return file
        self.log.append(("new", path))
        return LoggedFile(file, path, self.log)

    def sync(self, file: Any) -> None:
        super().sync(file)
        self.log.append(("sync", file.path))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.log.append(("rename", old, new))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.log.append(("sync_folder",))


def commit(folder: str, files: dict[str, bytes]) -> None:
    with Commit(folder, "set", facts={"which": "old" if files is OLD else "new"}) as new:
        for name, data in files.items():
            with new.open(name) as file:
                file.write(data)


def test_no_power_failure_loses_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, images = str(tmp_path / "set"), 0
    logged = LoggedFiles()
    with monkeypatch.context() as patch:
        patch.setattr(io, "local_files", logged)
        commit(folder, OLD)
        announced_at = len(logged.log)
        commit(folder, NEW)
    for length in range(announced_at, len(logged.log) + 1):
        disk = Disk()
        for operation in logged.log[:length]:
            getattr(disk, operation[0])(*operation[1:])
        seen = set()
        for image in disk.images():
            images += 1
            seen.add(which_is_found(image, folder, tmp_path / f"image-{images}"))
        assert seen <= ({"new"} if length == len(logged.log) else {"old", "new"})
    assert images > 60


def which_is_found(image: dict[str, bytes], folder: str, place: Path) -> str:
    place.mkdir()
    for path, data in image.items():
        (place / os.path.relpath(path, folder)).write_bytes(data)
    assert problems(place, "set", hashes=True) == []
    manifest = read_manifest(place, "set")
    assert manifest is not None
    return str(manifest.facts["which"])
