"""Folders with a text per file, in a folder per label."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.class_folders import class_folders
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.looking import Found, look_at


def look(path: Path, **wishes: str) -> Found:
    return look_at(str(path), Wishes(**wishes), {"dev": 0.1, "test": 0.1})  # type: ignore[arg-type]


def told(found: Found, what: str) -> str:
    return next(each.value for each in found.decisions if each.what == what)


def write(folder: Path, *, count: int = 40, ending: str = ".txt", encoding: str = "utf-8") -> None:
    for index in range(count):
        file = folder / ("体育", "财经")[index % 2] / f"{index}{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"第{index}条新闻\n比赛和股票的消息", encoding)


@pytest.mark.parametrize(("ending", "encoding"), [(".txt", "utf-8"), ("", "gb18030"), (".txt", "utf-8-sig")])
def test_a_folder_per_label_is_a_table_of_its_texts(tmp_path: Path, ending: str, encoding: str) -> None:
    write(tmp_path, ending=ending, encoding=encoding)
    (tmp_path / "readme.txt").write_text("mine")
    found = look(tmp_path)
    rows = sorted(row for each in found.rows.values() for row in each)
    assert (len(rows), rows[0]) == (40, ["第0条新闻\n比赛和股票的消息", "体育"])
    assert [len(found.rows[split]) for split in ("train", "dev", "test")] == [32, 4, 4]


def test_folders_per_label_may_be_in_one_per_split_and_those_without_labels_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "train", count=60)
    write(tmp_path / "test", count=20)
    (tmp_path / "train/unsup").mkdir()
    (tmp_path / "train/unsup/1.txt").write_text("no label")
    (tmp_path / "imdbEr.txt").write_text("0.1\n")
    (tmp_path / "train/urls.txt").write_text("far\n")
    found = look(tmp_path)
    assert told(found, "folders") == "train/ for train, test/ for test"
    assert told(found, "left out") == "'unsup', 1 texts without a label"
    assert sorted({row[-1] for each in found.rows.values() for row in each}) == ["体育", "财经"]
    assert len(found.rows["test"]) == 20


def test_a_file_in_another_encoding_or_without_a_text_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "体育/99.txt").write_bytes("消息".encode("gb18030"))
    (tmp_path / "财经/98.txt").write_text(" \n")
    found = look(tmp_path)
    assert "体育/99.txt is utf-8, but byte 1 of the file is not valid in it" in told(found, "left out")
    assert "1 rows without a text" in told(found, "left out")
    assert sum(map(len, found.rows.values())) == 40


def test_links_to_what_is_not_there_are_told(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/1.txt").symlink_to(tmp_path / "nowhere")
    assert told(look(tmp_path), "left out") == "1 links to what is not there, such as gone/1.txt"


def test_a_table_is_preferred_to_folders_with_notes(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(f"day {index},{index % 2}\n" for index in range(60)))
    assert told(look(tmp_path), "file").startswith("data.csv")


def test_a_folder_with_one_label_or_few_texts_is_no_data_set(tmp_path: Path) -> None:
    write(tmp_path, count=10)
    with pytest.raises(ConfigError, match="give each label a folder of texts, as train/good/1.txt"):
        look(tmp_path)
    assert not class_folders(str(tmp_path / "体育"))
