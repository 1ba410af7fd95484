"""Files of every format become one kind of table; where a file does not tell how, there is a question."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.headers import has_header
from xdpx.datasets.guessing.reading import Table, read_table

ROWS = [[f"a fine, long day number {index}", ("good", "bad")[index % 2]] for index in range(30)]


def table(folder: Path, name: str, text: str | bytes, **wishes: Any) -> Table:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(str(path), Wishes(**wishes))[0]


def quoted(row: list[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n"


def test_quotes_commas_and_line_ends_inside_cells_are_read(tmp_path: Path) -> None:
    rows = [[f'{text}, "yes"\nand more', label] for text, label in ROWS]
    assert table(tmp_path, "f.csv", "".join(map(quoted, rows))).rows == rows


def test_quotes_in_files_with_tabs_are_text(tmp_path: Path) -> None:
    rows = [[f'"{text}" he said', label] for text, label in ROWS]
    assert table(tmp_path, "f.tsv", "".join("\t".join(row) + "\n" for row in rows)).rows == rows


def test_quotes_that_wrap_cells_between_tabs_are_taken_off(tmp_path: Path) -> None:
    rows = [[f"{text}\tx", label] for text, label in ROWS]
    assert table(tmp_path, "f.tsv", "".join("\t".join(f'"{cell}"' for cell in row) + "\n" for row in rows)).rows == rows


def test_quotes_behind_a_backslash_are_within_cells(tmp_path: Path) -> None:
    lines = [f'"{text}, \\"yes\\"",{label}\n' for text, label in ROWS]
    assert table(tmp_path, "f.csv", "".join(lines)).rows == [[f'{text}, "yes"', label] for text, label in ROWS]


@pytest.mark.parametrize("first", ["", "text;score\n"])
def test_a_decimal_comma_is_no_delimiter(tmp_path: Path, first: str) -> None:
    lines = [f"a day number {index};{index % 7},{index:02}\n" for index in range(60)]
    assert table(tmp_path, "f.csv", first + "".join(lines)).rows[3] == ["a day number 3", "3,03"]


def test_a_header_is_told_from_a_row(tmp_path: Path) -> None:
    text = "".join(map(quoted, ROWS))
    assert not table(tmp_path, "f.csv", text).named
    named = table(tmp_path, "f.csv", "what,how\n" + text)
    assert (named.names, len(named.rows)) == (["what", "how"], 30)
    assert len(table(tmp_path, "f.csv", "what,how\n" + text, header=False).rows) == 31


def test_a_first_row_with_a_number_or_a_label_of_others_is_no_header() -> None:
    assert has_header(ROWS) == (False, "certain")
    assert has_header([["1", "text"], *ROWS]) == (False, "certain")
    assert has_header([["body", "y"], *([text, "1"] for text, _ in ROWS), ["z", "0"]]) == (True, "certain")


@pytest.mark.parametrize("name", ["f.jsonl", "f.jsonl.gz", "f.json"])
def test_objects_of_json_give_columns_by_name(tmp_path: Path, name: str) -> None:
    things = [{"text": text, "label": label, "tags": ["x", "y"], "deep": {"a": 1}} for text, label in ROWS]
    text = json.dumps(things) if name == "f.json" else "\n".join(map(json.dumps, things))
    found = table(tmp_path, name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    assert (found.names, found.rows[0]) == (["text", "label", "tags"], [*ROWS[0], "x\x1fy"])


def test_of_several_sheets_the_one_with_rows_is_taken_and_between_two_there_is_a_question(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["read me"])
    for name in ("data", "more"):
        sheet = book.create_sheet(name)
        sheet.append(["text", "label"])
        for row in ROWS if name == "data" else []:
            sheet.append(row)
    book.save(tmp_path / "f.xlsx")
    assert read_table(str(tmp_path / "f.xlsx"), Wishes())[0].rows == ROWS
    for row in ROWS:
        sheet.append(row)
    book.save(tmp_path / "f.xlsx")
    with pytest.raises(ConfigError, match="both 'data' and 'more' contain rows. Choose: sheet='data'"):
        read_table(str(tmp_path / "f.xlsx"), Wishes())
    assert read_table(str(tmp_path / "f.xlsx"), Wishes(sheet="more"))[0].rows == ROWS


def test_words_and_tags_are_sentences(tmp_path: Path) -> None:
    found = table(tmp_path, "f.txt", "Bonn B-LOC\nis O\n\nAnn B-PER\n")
    assert (found.tagged, found.rows) == (True, [["Bonn is", "B-LOC O"], ["Ann", "B-PER"]])


def test_a_few_odd_rows_are_left_out_by_name_and_many_are_refused(tmp_path: Path) -> None:
    text = "".join(map(quoted, ROWS * 5))
    assert table(tmp_path, "f.csv", text + "a,b,c\n").left_out == ("line 151 has 3 columns, not 2",)
    with pytest.raises(ConfigError, match="',' splits lines into 3 to 4 columns"):
        table(tmp_path, "f.csv", text + "a,b,c,d\n" * 60)


def test_a_column_without_a_name_as_pandas_writes_it_leaves_the_header_a_header() -> None:
    rows = [[str(index), *row] for index, row in enumerate(ROWS)]
    assert has_header([["", "text", "label"], *rows]) == (True, "certain")


def test_a_first_text_with_a_rare_label_is_no_header() -> None:
    assert has_header([["a text that is as long as texts are " * 3, "rare"], *ROWS]) == (False, "certain")


@pytest.mark.parametrize(
    "whole",
    [
        {"text": [row[0] for row in ROWS], "label": [row[1] for row in ROWS]},
        {
            "text": {str(n): row[0] for n, row in enumerate(ROWS)},
            "label": {str(n): row[1] for n, row in enumerate(ROWS)},
        },
        {f"r{n}": {"text": text, "label": label} for n, (text, label) in enumerate(ROWS)},
        {"version": 1, "data": [{"text": text, "label": label} for text, label in ROWS]},
    ],
)
def test_one_json_object_holds_columns_or_the_rows(tmp_path: Path, whole: Any) -> None:
    found = table(tmp_path, "f.json", json.dumps(whole))
    assert (found.names, found.rows) == (["text", "label"], ROWS)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("# exported", "Write each object on a line of its own"),
        ('{"text": "a", "label": "b"},', "with no comma behind it"),
        ("{'text': 'a', 'label': 'b'}", "Write it with double quotes"),
    ],
)
def test_a_line_among_objects_that_is_none_is_refused(tmp_path: Path, line: str, remedy: str) -> None:
    objects = [json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS]
    with pytest.raises(ConfigError, match=rf"object 1 is not JSON .*{remedy}"):
        table(tmp_path, "f.jsonl", line + "\n" + "".join(objects))


def test_an_array_of_json_is_read_whatever_the_ending_says(tmp_path: Path) -> None:
    things = [{"text": text, "label": label} for text, label in ROWS]
    assert table(tmp_path, "f.jsonl", json.dumps(things, indent=1)).rows == ROWS


def test_labels_in_front_of_texts_as_fasttext_has_them(tmp_path: Path) -> None:
    found = table(tmp_path, "f.txt", "__label__a __label__b one text, long\n__label__a another\n")
    assert found.rows == [["a\x1fb", "one text, long"], ["a", "another"]]


def test_rows_of_delimiters_alone_are_told(tmp_path: Path) -> None:
    found = table(tmp_path, "f.csv", "".join(map(quoted, ROWS)) + ",\n ,\n\n")
    assert (found.rows, found.left_out) == (ROWS, ("2 rows that contain only delimiters, such as line 31",))


def test_a_header_that_comes_again_where_files_were_joined_is_no_row(tmp_path: Path) -> None:
    part = "text,label\n" + "".join(map(quoted, ROWS))
    found = table(tmp_path, "f.csv", part * 3)
    assert (found.rows, found.left_out) == (ROWS * 3, ("2 rows that repeat the header",))


def test_the_same_header_behind_a_byte_order_mark_is_no_row(tmp_path: Path) -> None:
    part = "\ufefftext,label\n" + "".join(map(quoted, ROWS))
    found = table(tmp_path, "f.csv", part * 2)
    assert (found.rows, found.left_out) == (ROWS * 2, ("a row that repeats the header",))


def test_the_line_by_which_excel_knows_the_delimiter_is_no_row(tmp_path: Path) -> None:
    found = table(tmp_path, "f.csv", "sep=;\r\ntext;label\r\n" + "".join(f"{text};{label}\r\n" for text, label in ROWS))
    assert (found.names, found.rows, found.delimiter) == (["text", "label"], ROWS, ";")


def test_columns_without_name_and_content_are_left_out(tmp_path: Path) -> None:
    lines = "".join(
        f'{head},"{text}",{label},,\n' for head, text, label in [("", "text", "label"), *(("", *row) for row in ROWS)]
    )
    found = table(tmp_path, "f.csv", lines)
    assert (found.names, found.rows) == (["text", "label"], ROWS)
    assert table(tmp_path, "g.csv", "".join(f'"{text}",{label},,\n' for text, label in ROWS)).rows == ROWS


def test_a_sheet_without_names_keeps_its_first_row(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.save(tmp_path / "f.xlsx")
    found = read_table(str(tmp_path / "f.xlsx"), Wishes())[0]
    assert (found.rows, found.named) == (ROWS, False)
    assert read_table(str(tmp_path / "f.xlsx"), Wishes(header=True))[0].rows == ROWS[1:]


def test_a_sheet_with_a_title_and_a_total_is_read_between_them(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["What customers say"], [], ["text", "label"], *ROWS, ["text", "label"], ["合计", 30]):
        book.active.append(row)
    book.save(tmp_path / "f.xlsx")
    found = read_table(str(tmp_path / "f.xlsx"), Wishes())[0]
    assert (found.names, found.rows) == (["text", "label"], ROWS)
    assert found.left_out == (
        "2 rows above the names of the columns: 'What customers say'",
        "a row that repeats the header",
        "a total in the last row: 合计, 30",
    )


NO_TABLES = [
    ("", "is empty"),
    ("a\nc\0b", "NUL characters, the first in line 2"),
    ('{"a": {"b": 1}}\n{"a": {"b": 2}}\n', "has no texts or labels in a, but objects"),
    ("one\ntwo\nthree\n", "delimiter"),
    ("text,label\ngood, cheap,yes\nbad,no\n" * 9, "',' splits lines into 2 to 3 columns.* need quotes around them"),
    ("such a day 1\nno day 0\n" * 20, "each ends in a blank and one of 0, 1. Put a tab"),
    ("text,text,label\n" + "a b,c d,yes\ne f,g h,no\n" * 20, "two columns are called 'text'. Rename one"),
    ('{"a": 1, "b": {}}', "is one JSON object with a, b, none of which has the rows"),
    ("%PDF-1.4", "is a PDF. Export a table"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1", "is an old Excel"),
    (b"\x1f\x8b\x08", "Give it the ending .gz"),
    (b"ARROW1\0\0", "is an Arrow or Feather file. Write it as parquet"),
    (b"\x80\x05\x95 and so on", "is a pickle of Python"),
    (b"PK\x03\x04 and so on", "is a zip archive, but not a workbook"),
]


@pytest.mark.parametrize(("text", "problem"), NO_TABLES)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        table(tmp_path, "f.csv", text)


def test_lists_bytes_and_missing_values_of_parquet_are_read_as_those_of_json(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"text": [b"a", b"b"], "labels": [["x", "y"], []], "n": [1, None], "box": [{"k": 1}, {"k": 2}]}
    parquet.write_table(arrow.table(columns), tmp_path / "f.parquet")
    found = read_table(str(tmp_path / "f.parquet"), Wishes())[0]
    assert (found.names, found.rows) == (["text", "labels", "n"], [["a", "x\x1fy", "1"], ["b", "", ""]])
