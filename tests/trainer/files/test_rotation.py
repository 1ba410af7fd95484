from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.test_folders import saved as make
from xdpx.checkpoints import folders, publishing
from xdpx.trainer.files.rotation import rotate


def left(parent: Path) -> list[int]:
    return folders.steps(parent)


@pytest.mark.parametrize(("limit", "expected"), [(None, 5), (0, 5), (7, 5), (3, 3), (1, 1)])
def test_as_many_as_asked_for_stay(tmp_path: Path, limit: int | None, expected: int) -> None:
    make(tmp_path, 5, 10, 15, 20, 25)
    rotate(tmp_path, limit=limit)
    assert left(tmp_path) == [5, 10, 15, 20, 25][-expected:]
    assert all(path.suffix == "" for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("limit", "best", "expected"),
    [
        (3, 5, [5, 20, 25]),
        (2, 5, [5, 25]),
        (1, 5, [5, 25]),
        (1, 25, [25]),
        (2, 25, [20, 25]),
        (4, 15, [10, 15, 20, 25]),
    ],
)
def test_the_best_and_the_newest_stay(tmp_path: Path, limit: int, best: int, expected: list[int]) -> None:
    make(tmp_path, 5, 10, 15, 20, 25)
    rotate(tmp_path, limit=limit, best=str(tmp_path / f"checkpoint-{best}"))
    assert left(tmp_path) == expected


def test_the_best_is_known_also_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "run", 5, 10, 15)
    monkeypatch.chdir(tmp_path)
    rotate(tmp_path / "run", limit=1, best="run/checkpoint-5")
    assert left(tmp_path / "run") == [5, 15]


def test_checkpoints_of_an_earlier_run_go_before_those_of_this_one(tmp_path: Path) -> None:
    make(tmp_path, 400, 500, 10, 20)
    deleted = rotate(tmp_path, limit=2, current=20)
    assert deleted == [str(tmp_path / "checkpoint-400"), str(tmp_path / "checkpoint-500")]
    assert left(tmp_path) == [10, 20]


def test_the_newest_to_continue_from_stays_when_newer_ones_hold_weights_only(tmp_path: Path) -> None:
    make(tmp_path, 5, 10)
    make(tmp_path, 15, 20, 25, resumable=False)
    rotate(tmp_path, limit=2)
    assert left(tmp_path) == [10, 25]


def test_weights_only_are_rotated_like_all_others(tmp_path: Path) -> None:
    make(tmp_path, 5, 10, 15, resumable=False)
    rotate(tmp_path, limit=1)
    assert left(tmp_path) == [15]


def test_nothing_is_deleted_while_the_newest_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, 5, 10, 15)
    (tmp_path / "checkpoint-15/model.safetensors").write_bytes(b"")
    assert rotate(tmp_path, limit=1) == []
    assert left(tmp_path) == [5, 10, 15]
    assert "checkpoint-15" in capsys.readouterr().err


def test_what_another_process_wrote_is_read_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 5, 10, 15)
    path = tmp_path / "checkpoint-15/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    monkeypatch.setattr(publishing, "_read_back", set())
    assert rotate(tmp_path, limit=1) == []


def test_a_folder_that_is_being_uploaded_stays_for_now(tmp_path: Path) -> None:
    make(tmp_path, 5, 10, 15)
    assert rotate(tmp_path, limit=1, busy=[str(tmp_path / "checkpoint-5")]) == [str(tmp_path / "checkpoint-10")]


def test_checkpoints_on_an_object_store_are_deleted_too(any_root: str) -> None:
    make(any_root, 5, 10, 15)
    rotate(any_root, limit=1)
    assert folders.steps(any_root) == [15]


def test_the_newest_with_finite_weights_stays_and_the_newest_of_these_to_continue_from(tmp_path: Path) -> None:
    make(tmp_path, 5, 10)
    make(tmp_path, 15, resumable=False)
    make(tmp_path, 20, 25, finite=False)
    rotate(tmp_path, limit=1)
    assert left(tmp_path) == [10, 15, 25]
    found = folders.find(tmp_path, resumable=False)
    assert found.path == str(tmp_path / "checkpoint-15")
    assert [reason.partition(": ")[2] for reason in found.skipped] == ["weights in it are NaN or infinite."]


def test_a_folder_that_only_has_the_name_of_a_checkpoint_stays_and_does_not_count(tmp_path: Path) -> None:
    make(tmp_path, 5, 10, 15)
    mine = tmp_path / "checkpoint-2" / "notes"
    mine.mkdir(parents=True)
    (mine / "text.txt").write_text("mine")
    (tmp_path / "checkpoint-99").mkdir()
    rotate(tmp_path, limit=2, current=15)
    assert left(tmp_path) == [2, 10, 15, 99]
    assert (mine / "text.txt").read_text() == "mine"
