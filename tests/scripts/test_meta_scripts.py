"""aggregate_meta and diff_meta on data that x-prepro made."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.commands.prepro import Prepro
from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Two data_dirs: the second has one more row of class b, and other parameters."""
    return [made(tmp_path, "one", "w x\ta\ny\tb\n", 4), made(tmp_path, "two", "w x\ta\ny\tb\ny z\tb\n", 6)]


def made(tmp_path: Path, name: str, text: str, max_len: int) -> str:
    raw = tmp_path / f"raw_{name}"
    raw.mkdir()
    (raw / "train.txt").write_text(text)
    known = {
        "parser": "csv", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": max_len,
        "data_source": str(raw), "data_dir": str(tmp_path / "data" / name), "special_targets": ["a"],
    }  # fmt: skip
    Prepro(resolve(known, "x-prepro", source="test")).run()
    return str(tmp_path / "data" / name)


def table(text: str) -> list[dict[str, str]]:
    header, *rows = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_sizes_classes_and_tokens_of_all_data_stand_in_one_table(folders: list[str], tmp_path: Path, capsys) -> None:
    assert main(["aggregate_meta", str(tmp_path / "data")]) == 0
    rows = table(capsys.readouterr().out)
    assert [row["data_dir"] for row in rows] == folders
    assert [(row["num_classes"], row["max_len"], row["size_train"]) for row in rows] == [
        ("2", "4", "2"),
        ("2", "6", "3"),
    ]
    assert "lower" not in rows[0]


def test_in_full_the_parameters_that_differ_are_shown_too(folders: list[str], tmp_path: Path, capsys) -> None:
    assert main(["aggregate_meta", str(tmp_path / "data"), "--full"]) == 0
    assert "data_source" not in table(capsys.readouterr().out)[0]
    assert main(["aggregate_meta", str(tmp_path / "data"), "-two"]) == 0
    assert len(table(capsys.readouterr().out)) == 1


def test_without_data_it_says_so(tmp_path: Path, capsys) -> None:
    assert main(["aggregate_meta", str(tmp_path)]) == 1
    assert "no preprocessed data below" in capsys.readouterr().err


def test_labels_of_two_data_dirs_are_counted_and_compared(folders: list[str], capsys) -> None:
    assert main(["diff_meta", *folders]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "+- max_len: 4 -> 6" in lines
    counts = [line.split() for line in lines if line.startswith("train")]
    assert counts == [["train", "a", "1", "0.5", "1", "0.333333"], ["train", "b", "1", "0.5", "2", "0.666667"]]


def test_a_data_dir_equals_itself(folders: list[str], capsys) -> None:
    assert main(["diff_meta", folders[0], folders[0]]) == 0
    assert capsys.readouterr().out == "nothing differs\n"


def test_other_rows_with_the_same_counts_are_no_equal_data(folders: list[str], tmp_path: Path, capsys) -> None:
    other = made(tmp_path, "other", "y\ta\nw x\tb\n", 4)
    assert main(["diff_meta", folders[0], other]) == 1
    assert "+- train.pt: other content" in capsys.readouterr().out


def test_a_folder_without_meta_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"contains no meta\.hjson"):
        main(["diff_meta", str(tmp_path), str(tmp_path)])
