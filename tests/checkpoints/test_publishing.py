from __future__ import annotations

import os
from pathlib import Path

import pytest

from xdpx.checkpoints.folders import check, manifest_of
from xdpx.checkpoints.publishing import discard, publish, staging_of
from xdpx.utils import io
from xdpx.utils.owners import new_owner_id


def staged(parent: str, name: str) -> str:
    owner = new_owner_id()
    path = Path(staging_of(parent, name, owner))
    (path / "below").mkdir(parents=True)
    (path / "one.txt").write_text("one")
    (path / "below/two.txt").write_text("two")
    return owner


def test_what_was_staged_counts(any_root: str) -> None:
    io.makedirs(any_root)
    publish(any_root, "checkpoint-1", staged(any_root, "checkpoint-1"), facts={"a": 1})
    folder = io.join(any_root, "checkpoint-1")
    assert check(folder) == []
    manifest = manifest_of(folder)
    assert manifest is not None
    assert sorted(manifest.files) == ["below/two.txt", "one.txt"]


def test_it_is_no_error_when_another_process_has_done_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = staged(str(tmp_path), "checkpoint-1")
    rename = io.local_files.rename

    def already(old: str, new: str) -> None:
        rename(old, new)
        if new.endswith("checkpoint-1"):
            raise FileNotFoundError(old)

    monkeypatch.setattr(io.local_files, "rename", already)
    publish(str(tmp_path), "checkpoint-1", owner, facts={})
    assert check(tmp_path / "checkpoint-1") == []


def test_it_is_an_error_when_what_was_staged_has_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = staged(str(tmp_path), "checkpoint-1")

    def vanished(old: str, new: str) -> None:
        raise FileNotFoundError(old)

    monkeypatch.setattr(io.local_files, "rename", vanished)
    with pytest.raises(FileNotFoundError):
        publish(str(tmp_path), "checkpoint-1", owner, facts={})


def test_a_discarded_folder_is_gone(any_root: str) -> None:
    io.makedirs(any_root)
    publish(any_root, "checkpoint-1", staged(any_root, "checkpoint-1"), facts={})
    discard(io.join(any_root, "checkpoint-1"))
    assert not io.exists(io.join(any_root, "checkpoint-1"))


def test_a_folder_that_could_not_be_deleted_whole_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(str(tmp_path), "checkpoint-1", staged(str(tmp_path), "checkpoint-1"), facts={})

    def fail(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(io.local_files, "unlink", fail)
    with pytest.raises(PermissionError):
        discard(str(tmp_path / "checkpoint-1"))
    [left] = os.listdir(tmp_path)
    assert left.startswith("checkpoint-1.pruned.tmp-")
