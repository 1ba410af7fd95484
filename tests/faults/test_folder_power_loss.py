"""The power fails at any moment of saving a checkpoint folder, and the disk keeps only what was synced.

The disk is played back from a log of operations. Content that was not synced is lost, torn or kept; a name that was
not synced with its folder is there or not, and a folder that was renamed has its new name or its old one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_commit_power_loss import LoggedFile
from xdpx.checkpoints import folders
from xdpx.checkpoints.folders import FolderCommit, check, newest
from xdpx.utils import io
from xdpx.utils.local_files import LocalFiles

Names = dict[str, int]


def moved(names: Names, old: str, new: str) -> Names:
    """Rename a file, or a folder with all that is in it."""
    return {new + name[len(old) :] if f"{name}/".startswith(f"{old}/") else name: n for name, n in names.items()}


@dataclass
class Disk:
    """What is safe (`kept`), and which changes of names the operating system still owes, in order."""

    kept: Names = field(default_factory=dict)
    owed: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)  # (folder, change)
    numbers: Names = field(default_factory=dict)  # as programs see them
    content: list[bytes] = field(default_factory=list)
    synced: list[bytes] = field(default_factory=list)

    def new(self, path: str) -> None:
        self.numbers[path] = len(self.content)
        self.content.append(b"")
        self.synced.append(b"")
        self.owed.append((os.path.dirname(path), ("new", path, self.numbers[path])))

    def write(self, path: str, data: bytes) -> None:
        self.content[self.numbers[path]] += data

    def sync(self, path: str) -> None:
        self.synced[self.numbers[path]] = self.content[self.numbers[path]]

    def rename(self, old: str, new: str) -> None:
        self.numbers = moved(self.numbers, old, new)
        self.owed.append((os.path.dirname(new), ("move", old, new)))

    def unlink(self, path: str) -> None:
        self.numbers.pop(path)
        self.owed.append((os.path.dirname(path), ("drop", path)))

    def sync_folder(self, folder: str) -> None:
        safe = [change for where, change in self.owed if where == folder]
        self.owed = [(where, change) for where, change in self.owed if where != folder]
        self.kept = applied(self.kept, safe)

    def images(self) -> Iterator[dict[str, bytes]]:
        """Yield every state that may be found after the power failed now."""
        for chosen in itertools.product([False, True], repeat=len(self.owed)):
            names = applied(self.kept, [change for (_, change), it in zip(self.owed, chosen, strict=True) if it])
            for part in (0.0, 0.5, 1.0):
                yield {path: self.after_failure(number, part) for path, number in names.items()}

    def after_failure(self, number: int, part: float) -> bytes:
        safe, whole = self.synced[number], self.content[number]
        return safe + whole[len(safe) :][: int(part * (len(whole) - len(safe)))]


def applied(names: Names, changes: list[tuple[Any, ...]]) -> Names:
    names = dict(names)
    for kind, path, *rest in changes:
        if kind == "new":
            names[path] = rest[0]
        elif kind == "drop":
            names.pop(path, None)
        else:
            names = moved(names, path, rest[0])
    return names


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
        self.log.append(("sync", file.name))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.log.append(("sync_folder", os.path.normpath(path)))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.log.append(("rename", old, new))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.log.append(("unlink", path))


def save(parent: str, step: int, text: bytes) -> None:
    with FolderCommit(parent, f"checkpoint-{step}") as staging:
        for name in ("a", "below/b"):
            with staging.open(name) as file:
                file.write(text + name[-1:].encode())


@pytest.mark.parametrize("step", [10, 20], ids=["the same step again", "the next step"])
def test_no_power_failure_loses_an_announced_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    parent, images, logged = str(tmp_path / "run"), 0, LoggedFiles()
    with monkeypatch.context() as patch:
        patch.setattr(io, "local_files", logged)
        save(parent, 10, b"old ")
        announced_at = len(logged.log)
        save(parent, step, b"the NEW ")
    monkeypatch.setattr(folders, "fate_of", lambda owner: "gone")  # as after the machine came up again
    for length in range(announced_at, len(logged.log) + 1):
        disk, seen = Disk(), set()
        for operation, *details in logged.log[:length]:
            getattr(disk, operation)(*details)
        for image in disk.images():
            images += 1
            seen.add(which_is_found(image, parent, tmp_path / f"image-{images}"))
        assert seen <= ({b"the NEW "} if length == len(logged.log) else {b"old ", b"the NEW "})
    assert images > 60


def which_is_found(image: dict[str, bytes], parent: str, place: Path) -> bytes:
    place.mkdir()
    for path, data in image.items():
        target = place / os.path.relpath(path, parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    found = newest(place, resumable=False)
    assert found is not None
    assert check(found) == []
    texts = {(Path(found) / name).read_bytes()[:-1] for name in ("a", "below/b")}
    assert len(texts) == 1
    return texts.pop()
