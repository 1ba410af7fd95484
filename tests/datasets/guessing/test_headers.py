"""Headers among rows, above rows of another width, and of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.headers import has_header
from xdpx.datasets.guessing.reading import Table, read_table

ROWS = [[f"a fine day number {index}", ("good", "bad")[index % 2]] for index in range(60)]
LINES = [",".join(row) + "\n" for row in ROWS]


def table(folder: Path, *lines: str) -> Table:
    (folder / "f.csv").write_text("".join(lines))
    return read_table(str(folder / "f.csv"), Wishes())[0]


@pytest.mark.parametrize("line", ["text,label\n", "Text,Label\n", '"sentence","sentiment"\n', "label,text\n"])
def test_names_of_columns_between_rows_are_no_row_and_told(tmp_path: Path, line: str) -> None:
    for first in ("", "text,label\n"):
        found = table(tmp_path, first, *LINES[:15], line, *LINES[15:])
        assert found.rows == ROWS
        assert "the header" in found.left_out[0] or "a row with names of columns" in found.left_out[0]


def test_names_of_columns_are_a_row_where_their_label_has_others(tmp_path: Path) -> None:
    rows = [*LINES[:15], "title,tag\n", "a long one,tag\n", *LINES[15:]]
    assert len(table(tmp_path, *rows).rows) == 62


def test_a_line_of_dashes_below_the_names_is_no_row(tmp_path: Path) -> None:
    lines = [f"| {text} | {label} |\n" for text, label in ROWS]
    found = table(tmp_path, "| text | label |\n", "|:---|----|\n", *lines)
    assert (len(found.rows), found.left_out) == (60, ("a row of dashes",))


def test_numbers_of_columns_are_a_header_and_numbers_in_a_row_are_none() -> None:
    assert has_header([["0", "1"], *ROWS]) == (True, "likely")
    assert has_header([["", "1", "2"], *([str(index), *row] for index, row in enumerate(ROWS))]) == (True, "likely")
    assert has_header([["0", "1"], *([str(index), "1"] for index in range(9))]) == (False, "certain")
    assert has_header([["2", "1"], *ROWS]) == (False, "certain")


def test_names_above_cells_that_were_split_too_often_are_refused(tmp_path: Path) -> None:
    lines = [f"“fine, number {index}”,{index % 2}\n" for index in range(60)]
    with pytest.raises(ConfigError, match=r"',' splits the first line into 2 names \(text, label\), but most rows int"):
        table(tmp_path, "text,label\n", *lines)


def test_row_names_of_r_and_delimiters_at_the_ends_of_rows_fit_their_header(tmp_path: Path) -> None:
    numbered = [f'"{index}","{text}","{label}"\n' for index, (text, label) in enumerate(ROWS, 1)]
    assert table(tmp_path, '"text","label"\n', *numbered).names == ["column 1", "text", "label"]
    found = table(tmp_path, "text,label\n", *(line.replace("\n", ",\n") for line in LINES))
    assert (found.names, found.rows) == (["text", "label"], ROWS)


TITLE = "What customers say,\n,2026-03-01\n"


@pytest.mark.parametrize("title", ["What customers say,\n", TITLE, "\n" + TITLE + "\n"])
def test_a_title_above_the_names_and_a_total_below_the_rows_are_no_rows(tmp_path: Path, title: str) -> None:
    found = table(tmp_path, title, "text,label\n", *LINES, "Total:,60\n")
    assert (found.names, found.rows) == (["text", "label"], ROWS)
    assert found.left_out == (
        f"{'2 rows' if '2026' in title else 'a row'} above the names of the columns: 'What customers say'",
        "a total in the last row: Total:, 60",
    )


def test_names_that_are_not_common_are_found_below_a_title_of_one_cell(tmp_path: Path) -> None:
    lines = [f"u{index},第{index}条很好,{('满意', '不满意')[index % 2]}\n" for index in range(60)]
    found = table(tmp_path, "调查结果,,\n", "用户,评价内容,满意度\n", *lines)
    assert (found.names, len(found.rows)) == (["用户", "评价内容", "满意度"], 60)
    assert len(table(tmp_path, "调查,结果,\n", "用户,评价内容,满意度\n", *lines).rows) > 60


def test_a_first_row_without_a_label_is_no_title(tmp_path: Path) -> None:
    found = table(tmp_path, "a rainy day,\n", "label,good\n", *LINES)
    assert (found.named, len(found.rows), found.left_out) == (False, 62, ())


def test_the_total_of_something_else_is_a_row(tmp_path: Path) -> None:
    assert len(table(tmp_path, *LINES, "total,bad\n").rows) == 61
    assert len(table(tmp_path, "total,3\n", *LINES).rows) == 61
