"""One file, a folder or a workbook: which rows are train, dev and test, and what is asked where that is not clear."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.looking import Found, look_at

SHARES = {"dev": 0.1, "test": 0.1}
ROWS = [(f"a fine long day number {index}", ("good", "bad")[index % 2]) for index in range(60)]
LINES = "".join(f"{text},{label}\n" for text, label in ROWS)


def look(path: Path, **wishes: str) -> Found:
    return look_at(str(path), Wishes(**wishes), SHARES)  # type: ignore[arg-type]


def told(found: Found, what: str) -> str:
    return next(each.value for each in found.decisions if each.what == what)


def test_the_only_file_of_a_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\n" + LINES)
    (tmp_path / "notes.md").write_text("mine")
    found = look(tmp_path)
    assert told(found, "file") == "reviews.csv, the only file in the folder"
    assert sum(map(len, found.rows.values())) == 60


def test_of_several_files_none_is_taken_by_chance(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(LINES)
    with pytest.raises(ConfigError, match="without a file called train. .* It holds a.csv, b.csv"):
        look(tmp_path)


def test_a_file_without_labels_among_the_splits_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + LINES)
    (tmp_path / "test.csv").write_text("text\n" + "".join(f"{text}\n" for text, _ in ROWS))
    with pytest.raises(ConfigError, match="test.csv: 1 fault\n  file: has no column 'label', as .*train.csv has"):
        look(tmp_path)


def test_sheets_called_like_splits_are_splits(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "train"
    for sheet, rows in ((book.active, ROWS[:40]), (book.create_sheet("test"), ROWS[40:])):
        for row in [("text", "label"), *rows]:
            sheet.append(row)
    book.save(tmp_path / "f.xlsx")
    assert len(look(tmp_path / "f.xlsx").rows["test"]) == 20
    assert len(look(tmp_path / "f.xlsx", sheet="train").rows["train"]) == 32


def test_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    for name in ("train.csv", "dev.csv", "val.csv", "old.csv"):
        (tmp_path / name).write_text("text,label\n" + LINES)
    assert told(look(tmp_path), "files") == "train.csv for train, dev.csv for dev; not read: old.csv, val.csv"


def test_a_split_with_none_of_the_labels_of_training_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(LINES)
    (tmp_path / "dev.csv").write_text("".join(f"{label},{text}\n" for text, label in ROWS))
    with pytest.raises(ConfigError, match=r"dev.csv: 1 fault\n  label: has none of the labels of training \("):
        look(tmp_path)


def test_a_column_of_labels_without_any_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(
        "text,label\n" + "".join(f"{text} {index},\n" for index, (text, _) in enumerate(ROWS))
    )
    with pytest.raises(ConfigError, match="label: column 'label' holds no label in any row"):
        look(tmp_path / "f.csv")


def test_a_missing_value_is_no_class_and_its_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("text,label\n" + LINES + "one more day,NaN\nand another,\n")
    found = look(tmp_path / "f.csv")
    assert told(found, "left out") == "2 rows without a text or a label (or with NaN)"
    assert told(found, "task").startswith("class, of 2:")


def test_dates_and_numbers_of_rows_are_unused_and_told(tmp_path: Path) -> None:
    rows = "".join(f"{index},2024-01-{1 + index % 28:02d} 10:30:00,{text},{label}\n"
                   for index, (text, label) in enumerate(ROWS))  # fmt: skip
    (tmp_path / "f.csv").write_text(",day,what,how\n" + rows)
    found = look(tmp_path / "f.csv")
    assert told(found, "unused") == "'column 1', 'day'"
    assert ROWS[0] in {tuple(row) for each in found.rows.values() for row in each}


def test_the_same_text_in_all_rows_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("text,label\n" + "same,a\nsame,b\n" * 20)
    with pytest.raises(ConfigError, match="text: is 'same' in all 40 rows"):
        look(tmp_path / "f.csv")


def test_lists_of_labels_are_several_also_where_none_stands_alone(tmp_path: Path) -> None:
    lines = [
        f"__label__{'ab'[index % 2]} __label__{'cd'[index % 3 % 2]} {text}" for index, (text, _) in enumerate(ROWS)
    ]
    (tmp_path / "f.txt").write_text("\n".join(lines))
    assert look(tmp_path / "f.txt").columns.separator == "|"


def test_a_pair_the_other_way_round_is_in_the_same_split(tmp_path: Path) -> None:
    pairs = [(f"where is the house {index}", f"the house {index} is where", str(index % 2)) for index in range(60)]
    turned = [(second, first, label) for first, second, label in pairs]
    lines = "".join(",".join(row) + "\n" for row in pairs + turned)
    (tmp_path / "pairs.csv").write_text(f"text1,text2,label\n{lines}")
    rows = look(tmp_path / "pairs.csv").rows
    assert all({(b, a, label) for a, b, label in each} == set(map(tuple, each)) for each in rows.values())
    assert sum(map(len, rows.values())) == 120
