from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from xdpx.config.loading import Run, load
from xdpx.launch.far_side import FarSide


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.txt").write_text("a\tb\n")
    words = ["data_source=raw", "data_dir=/data/made", "loader=single", "processor=single", "tokenizer=space"]
    return load("", "x-prepro", [*words, "max_len=4"], paths=False)[0]


def test_a_relative_path_is_a_fault_where_files_are_not_shared(run: Run) -> None:
    far = FarSide(shared=False)
    assert [fault.key for fault in far.faults([run, run])] == ["data_source"]
    assert far.notes == [
        "data_dir: /data/made is a path on this machine; whether it also exists there cannot be checked from here."
    ]


def test_a_far_root_makes_relative_paths_meaningful_and_they_are_named(run: Run) -> None:
    far = FarSide(shared=False, root="/mnt/me")
    assert far.faults([run]) == []
    assert "data_source: /mnt/me/raw cannot be checked from here." in far.notes


def test_what_is_said_to_be_there_is_believed_and_named(run: Run) -> None:
    far = FarSide(shared=False, only_there=("raw", "/data"))
    assert far.faults([run]) == []
    assert [note.partition(" is assumed")[0] for note in far.notes] == ["data_source: raw", "data_dir: /data/made"]


def test_shared_files_need_nothing(run: Run) -> None:
    far = FarSide(shared=True)
    assert far.faults([run]) == []
    assert far.notes == []


def test_what_is_packed_goes_along_and_what_is_written_does_not_come_back(run: Run) -> None:
    far = FarSide(shared=False, packed=True)
    assert far.faults([run]) == []
    values = {"data_dir": "raw", "save_dir": "raw", "valid_subset": "dev"}
    assert [fault.key for fault in far.faults([replace(run, values=values, command="x-train")])] == ["save_dir"]


def test_a_far_root_does_not_bring_back_what_is_written_into_a_package(run: Run) -> None:
    far = FarSide(shared=False, packed=True, root="/mnt/me")
    [fault] = far.faults([replace(run, values={"save_dir": "raw"}, command="x-train")])
    assert "--far-root" not in fault.remedy
