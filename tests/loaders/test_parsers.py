"""Rows that each format gives, whatever the block size, the compression and the line ends."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.loaders.parsers import files, parsers
from xdpx.loaders.parsers.base import BadLine, Parser, RowParser


def make(name: str, **values: Any) -> Parser:
    parser: Parser = parsers[name](parsers[name].Parameters(**values))
    return parser


def read(parser: Parser, path: Path) -> tuple[list[list[str]], list[int], list[BadLine]]:
    rows, lines, bad = [], [], []
    for block in parser.blocks(str(path)):
        parsed = parser.parse(block)
        rows += parsed.rows
        lines += list(parsed.lines)
        bad += parsed.bad
    return rows, lines, bad


def rows_of(parser: Parser, path: Path, content: bytes | str) -> list[list[str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rows, _, bad = read(parser, path)
    assert not bad
    return rows


def test_empty_first_and_last_columns_are_kept(tmp_path: Path) -> None:
    assert rows_of(make("csv"), tmp_path / "a.tsv", "\ta\t\n b \t\t1") == [["", "a", ""], [" b ", "", "1"]]


def test_a_byte_order_mark_and_carriage_returns_are_no_text(tmp_path: Path) -> None:
    assert rows_of(make("none"), tmp_path / "a.txt", "\ufeffa\ufeff\r\nb\rc\r\n") == [["a\ufeff"], ["b\rc"]]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\x01h"
    assert rows_of(make("none"), tmp_path / "a.txt", text + "\n") == [[text]]


def test_quoted_cells_hold_delimiters_quotes_and_line_breaks(tmp_path: Path) -> None:
    content = 'label,text\n1,"a, ""b""\nc"\n0,d\n'
    parser = make("csv", delimiter=",", quotechar='"', start_line=1)
    (tmp_path / "a.csv").write_text(content)
    assert read(parser, tmp_path / "a.csv") == ([["1", 'a, "b"\nc'], ["0", "d"]], [2, 4], [])


def test_without_quotechar_quotes_are_text(tmp_path: Path) -> None:
    assert rows_of(make("csv"), tmp_path / "a.tsv", 'he said "hi\t1\n') == [['he said "hi', "1"]]


def test_a_quote_left_open_is_a_bad_line_that_says_where_it_began(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,1\n"b,2\nc,3\n')
    _, _, bad = read(make("csv", delimiter=",", quotechar='"'), tmp_path / "a.csv")
    assert [line for line, _ in bad] == [2]
    assert "is a quote unclosed?" in bad[0].problem


QUOTED = 'id,text,label\n1,"a, ""b""\nc",0\n2,plain,1\n3,said "hi" to,0\n'


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("block_bytes", [1, 5, 17, 1 << 20])
def test_quotes_wrap_cells_by_themselves_where_a_comma_or_semicolon_delimits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delimiter: str, block_bytes: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    (tmp_path / "a.csv").write_text(QUOTED.replace(",", delimiter))
    found = read(make("csv", delimiter=delimiter, fields=["text", "label"]), tmp_path / "a.csv")
    first = f'a{delimiter} "b"\nc'
    assert found == ([[first, "0"], ["plain", "1"], ['said "hi" to', "0"]], [2, 4, 5], [])


@given(
    rows=st.lists(st.lists(st.text(alphabet='a,"\n \u4e2d', max_size=6), min_size=2, max_size=2), max_size=12),
    size=st.integers(1, 40),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_what_the_csv_library_writes_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], size: int, quoting: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=quoting, lineterminator="\n").writerows([["x", "y"], *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", size)
        found, _, bad = read(make("csv", delimiter=",", fields=["x", "y"]), path)
    assert (found, bad) == (rows, [])


def test_quotes_are_text_where_a_tab_delimits_or_quotechar_is_null(tmp_path: Path) -> None:
    assert rows_of(make("csv"), tmp_path / "a.tsv", '"it is" he said\t"1"\n') == [['"it is" he said', '"1"']]
    parser = make("csv", delimiter=",", quotechar=None)
    assert rows_of(parser, tmp_path / "a.csv", '"it is" he said,1\n') == [['"it is" he said', "1"]]


@pytest.mark.parametrize("line", ['"it is" he said,1', '"never closed,1'])
def test_quotes_that_wrap_no_cell_are_a_bad_line_that_tells_of_null(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,0\n{line}\n")
    _, _, bad = read(make("csv", delimiter=","), tmp_path / "a.csv")
    assert [number for number, _ in bad] == [2]
    assert "set quotechar: null" in bad[0].problem


@pytest.mark.parametrize("row", ["1,2,3,4", "1,2", '1,2,"3"x'])
def test_a_row_of_another_width_than_the_header_is_bad(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(f"text,label,id\na,0,1\n{row}\n\nb,1,2\n")
    rows, lines, bad = read(make("csv", delimiter=",", fields=["text", "label"], quotechar=None), tmp_path / "a.csv")
    width = row.count(",") + 1
    assert [number for number, _ in bad] == ([3] if width != 3 else [])
    assert len(rows) == len(lines) == (2 if width != 3 else 3)


def test_a_label_field_that_is_misspelt_makes_no_unlabelled_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "1"}\n{"text": "b", "label": "0"}\n')
    rows, _, bad = read(make("jsonl", fields=["text", "lable"]), tmp_path / "a.jsonl")
    assert rows == []
    assert "has no field 'lable', but 'label'" in bad[0].problem
    (tmp_path / "b.jsonl").write_text('{"text": "a", "id": 3}\n')
    assert rows_of(make("jsonl", fields=["text", "label"]), tmp_path / "b.jsonl", '{"text": "a", "id": 3}\n') == [["a"]]


def test_a_bare_backslash_t_means_a_tab(tmp_path: Path) -> None:
    assert rows_of(make("csv", delimiter="\\t"), tmp_path / "a.tsv", "a\tb\n") == [["a", "b"]]


@pytest.mark.parametrize("start_line", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_at_the_top_are_skipped(tmp_path: Path, start_line: int, end: str) -> None:
    expected = [["a"], ["b"], ["c"]][start_line:]
    assert rows_of(make("none", start_line=start_line), tmp_path / "a.txt", "a\nb\nc" + end) == expected


@given(lines=st.lists(st.text(alphabet="ab中\r", max_size=9), max_size=20), size=st.integers(1, 30))
def test_the_size_of_blocks_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks.txt"
    assume(len(lines) != 1 or "\r" not in lines[0])  # there it ends lines
    path.write_bytes("\n".join(lines).encode())
    blocks = list(files.line_blocks(str(path), block_bytes=size))
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    begins = [1 + path.read_bytes()[: path.read_bytes().index(b.data)].count(b"\n") for b in blocks[:1]]
    assert [block.first_line for block in blocks[:1]] == begins


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read_and_cut_ones_refused(tmp_path: Path, suffix: str, pack: Any) -> None:
    lines = [f"line {number} \u4e2d" for number in range(20000)]
    packed = pack("\n".join(lines).encode())
    assert rows_of(make("none"), tmp_path / f"a.txt{suffix}", packed) == [[line] for line in lines]
    middle = len(packed) // 2
    for cut in (packed[:middle], packed[: middle - 30] + b"\x55" * 60 + packed[middle + 30 :]):
        (tmp_path / f"cut{suffix}").write_bytes(cut)
        with pytest.raises(ConfigError, match="truncated or damaged"):
            read(make("none"), tmp_path / f"cut{suffix}")


def test_bad_utf8_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\nb\xffd\nfine\r\n")
    rows, lines, bad = read(make("none"), tmp_path / "a.txt")
    assert (rows, lines) == ([["good"], ["fine"]], [1, 3])
    assert bad == [BadLine(2, "is not UTF-8 text (byte 0xff at 2)")]


@pytest.mark.parametrize("quotechar", [None, '"'])
def test_a_nul_is_no_text(tmp_path: Path, quotechar: str | None) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,1\nb\x00,2\nc,3\n")
    rows, lines, bad = read(make("csv", delimiter=",", quotechar=quotechar), tmp_path / "a.csv")
    assert (rows, list(lines), bad) == ([["a", "1"], ["c", "3"]], [1, 3], [BadLine(2, "holds a NUL character")])


def test_bad_utf8_in_a_quoted_file_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"a",1\n"\xff",2\n')
    rows, _, bad = read(make("csv", delimiter=",", quotechar='"'), tmp_path / "a.csv")
    assert rows == [["a", "1"]]
    assert bad == [BadLine(2, "is not UTF-8 text (byte 0xff)")]


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "big5", "utf-16", "utf-16-le", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_text_of_any_encoding_and_line_ends_is_read(tmp_path: Path, encoding: str, ends: str) -> None:
    rows = [[f"\u6211\u5f88\u597d, \u4f60\u5462 {index}", "\u597d"] for index in range(3000)]
    content = "".join(f'"{text}",{label}{ends}' for text, label in rows).encode(encoding)
    parser = make("csv", delimiter=",", encoding=encoding)
    assert rows_of(parser, tmp_path / "a.csv", content) == rows
    assert rows_of(parser, tmp_path / "a.csv.gz", gzip.compress(content)) == rows


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_decides(tmp_path: Path, encoding: str) -> None:
    assert rows_of(make("none", encoding="gbk"), tmp_path / "a.txt", "\u6211\n".encode(encoding)) == [["\u6211"]]


def test_json_and_tagged_words_are_read_in_their_encoding_too(tmp_path: Path) -> None:
    word = "\u6211"
    things = json.dumps([{"text": word}], ensure_ascii=False).encode("gbk")
    assert rows_of(make("json", fields=["text"], encoding="gbk"), tmp_path / "a.json", things) == [[word]]
    assert rows_of(make("jsonl", fields=["text"], encoding="gbk"), tmp_path / "a.jsonl", things[1:-1]) == [[word]]
    assert rows_of(make("conll", encoding="gbk"), tmp_path / "a.txt", f"{word} O\n".encode("gbk")) == [[word, "O"]]


def test_a_byte_that_does_not_fit_spoils_its_line_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\u6211\n".encode("gbk") + b"a\xff\n" + "\u4f60\n".encode("gbk"))
    rows, lines, bad = read(make("none", encoding="gbk"), tmp_path / "a.txt")
    assert (rows, list(lines), [line for line, _ in bad]) == ([["\u6211"], ["\u4f60"]], [1, 3], [2])


def test_utf8_is_not_read_as_another_encoding_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\u6211\u5f88\u597d\n" * 9, encoding="utf-8")
    with pytest.raises(ConfigError, match="encoding: is 'gbk', but the text is UTF-8. Leave the key out"):
        read(make("none", encoding="gbk"), tmp_path / "a.txt")


@pytest.mark.parametrize(("name", "remedy"), [("gkb", "Did you mean 'gbk'"), ("xyzzy", "Use e.g. utf-8")])
def test_an_encoding_that_there_is_not_is_a_conflict(name: str, remedy: str) -> None:
    ((key, problem),) = parsers["csv"].Parameters(encoding=name).conflicts()
    assert (key, remedy in problem) == ("encoding", True)


def test_an_endless_line_is_bad_and_the_next_one_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 3 << 20)
    (tmp_path / "a.txt").write_bytes(b"first\n" + b"x" * (9 << 20) + b"\nlast\n")
    rows, lines, bad = read(make("none"), tmp_path / "a.txt")
    assert (rows, lines) == ([["first"], ["last"]], [1, 3])
    assert [(line, problem) for line, problem in bad] == [(2, "is longer than 3 MiB")]


def test_fields_of_json_lines_become_columns(tmp_path: Path) -> None:
    content = '{"label": 1, "text": "a\\tb", "x": null}\n\n{"text": "c", "label": true}\n'
    assert rows_of(make("jsonl", fields=["text", "label"]), tmp_path / "a.jsonl", content) == [
        ["a\tb", "1"],
        ["c", "true"],
    ]


def test_fields_missing_at_the_end_make_an_unlabelled_row(tmp_path: Path) -> None:
    assert rows_of(make("jsonl", fields=["text", "label"]), tmp_path / "a.jsonl", '{"text": "a"}\n') == [["a"]]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not JSON"),
        ("[1]", "is a list, not an object"),
        ('{"label": "1"}', "has no field 'text'"),
        ('{"text": null, "label": 1}', "field 'text' is null, not text"),
        ('{"text": ["a"], "label": 1}', "field 'text' is a list, not text"),
        ('{"text": "\\ud800", "label": 1}', "holds half of a surrogate pair (U+D800)"),
        ("[" * 100000, "is nested too deeply"),
    ],
)
def test_json_lines_that_are_no_record_are_bad(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "x", "label": 0}}\n{line}\n')
    rows, lines, bad = read(make("jsonl", fields=["text", "label"]), tmp_path / "a.jsonl")
    assert (rows, lines, len(bad), bad[0].line) == ([["x", "0"]], [1], 1, 2)
    assert bad[0].problem.startswith(problem)


def test_a_json_array_is_read_record_by_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdpx.loaders.parsers.json.BLOCK_BYTES", 7)
    records = [{"t": f"中{number}", "l": number % 2} for number in range(50)]
    content = "\ufeff " + json.dumps(records, ensure_ascii=False, indent=1) + "\n"
    expected = [[f"中{number}", str(number % 2)] for number in range(50)]
    assert rows_of(make("json", fields=["t", "l"]), tmp_path / "a.json", content) == expected


def test_an_empty_json_array_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(make("json", fields=["t"]), tmp_path / "a.json", "[ ]") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"t": "a"}', r"does not begin with '\['"),
        ("", r"does not begin with '\['"),
        ('[{"t": "a"} {"t": "b"}]', "record 1 is not followed by"),
        ('[{"t": "a"},]', "record 2 is not JSON"),
        ('[{"t": "a"}', "record 1 is not followed by"),
        ('[{"t": "a"', "record 1 is not JSON"),
        ('[{"t": "a"}] x', "continues after"),
    ],
)
def test_a_damaged_json_array_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        read(make("json", fields=["t"]), tmp_path / "a.json")


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.create_sheet("Data")
    for row in [("label", "text"), (1, "a"), (2.5, None), (None, None), (True, "中")]:
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


def test_a_sheet_gives_its_columns_as_text(workbook: Path) -> None:
    rows, lines, _ = read(make("excel", sheet_name="Data", fields=["text", "label"]), workbook)
    assert (rows, lines) == ([["a", "1"], ["", "2.5"], ["中", "true"]], [2, 3, 5])
    assert make("excel", sheet_name="Data").header(str(workbook)) == ["label", "text"]


def test_a_sheet_without_the_label_column_is_unlabelled(workbook: Path) -> None:
    parser = make("excel", sheet_name="Data", fields=["text", "grade"])
    assert parser.header(str(workbook)) == ["text"]
    assert read(parser, workbook)[0] == [["a"], [""], ["中"]]


def test_a_cell_behind_the_named_columns_of_a_sheet_is_bad(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("text", "label"), ("a", 1), ("b", 0, "x"), ("c", 1, None)]:
        book.active.append(row)
    book.active.title = "Data"
    book.save(tmp_path / "a.xlsx")
    rows, _, bad = read(make("excel", sheet_name="Data"), tmp_path / "a.xlsx")
    assert (rows, [line for line, _ in bad]) == ([["a", "1"], ["c", "1"]], [3])
    rows, _, bad = read(make("excel", sheet_name="Data", fields=["text", "label"]), tmp_path / "a.xlsx")
    assert (rows, bad) == ([["a", "1"], ["b", "0"], ["c", "1"]], [])


def test_rows_above_the_names_of_a_sheet_can_be_skipped(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("a title",), (), ("text", "label"), ("a", 1), ("b", 0)]:
        book.active.append(row)
    book.active.title = "Data"
    book.save(tmp_path / "a.xlsx")
    parser = make("excel", sheet_name="Data", start_line=2)
    assert read(parser, tmp_path / "a.xlsx")[:2] == ([["a", "1"], ["b", "0"]], [4, 5])
    assert parser.header(str(tmp_path / "a.xlsx")) == ["text", "label"]
    _, _, bad = read(make("excel", sheet_name="Data"), tmp_path / "a.xlsx")
    assert "skip the rows above them by start_line" in parser.remedy(bad[0].problem)


def test_empty_cells_of_a_workbook_are_explained_by_merged_ones_and_formulas():
    problem = make("excel", sheet_name="Data").remedy("has an empty label")
    assert "Of merged cells only the first has a value, and a formula" in problem
    assert "merged cells" not in make("excel", sheet_name="Data").remedy("has 3 columns")


def test_a_sheet_or_column_that_is_not_there_is_refused_with_the_nearest(workbook: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Data'"):
        read(make("excel", sheet_name="Date"), workbook)
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        read(make("excel", sheet_name="Data", fields=["labels"]), workbook)


def test_what_is_no_workbook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK nonsense")
    with pytest.raises(ConfigError, match=r"is not an \.xlsx workbook"):
        read(make("excel", sheet_name="Data"), tmp_path / "a.xlsx")


def test_parquet_gives_its_columns_as_text_and_nulls_are_bad(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"label": [1, 2, 3], "text": ["a", None, "中"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows, lines, bad = read(make("parquet", fields=["text", "label"]), tmp_path / "a.parquet")
    assert (rows, lines) == ([["a", "1"], ["中", "3"]], [1, 3])
    assert bad == [BadLine(2, "column 'text' is null, not text")]
    unlabelled = make("parquet", fields=["text", "grade"])
    assert read(unlabelled, tmp_path / "a.parquet")[0] == [["a"], ["中"]]
    assert unlabelled.header(str(tmp_path / "a.parquet")) == ["text"]
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(ConfigError, match="not a parquet file"):
        read(make("parquet"), tmp_path / "cut.parquet")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": "||", "quotechar": '"'}, "delimiter"),
        ({"quotechar": "''"}, "quotechar"),
    ],
)
def test_delimiters_and_quotes_that_cannot_work_are_conflicts(values: dict[str, Any], key: str) -> None:
    assert [where for where, _ in parsers["csv"].Parameters(**values).conflicts()] == [key]


@pytest.mark.parametrize("quotechar", [None, '"'])
def test_columns_are_taken_by_the_names_in_the_header(tmp_path: Path, quotechar: str | None) -> None:
    parser = make("csv", fields=["text", "label"], quotechar=quotechar, delimiter=",")
    (tmp_path / "a.csv").write_text("\ufeffid,label, text \n7,pos,good film\n8,neg\n")
    rows, lines, bad = read(parser, tmp_path / "a.csv")
    assert (rows, lines) == ([["good film", "pos"]], [2])
    assert bad == [BadLine(3, "has 2 columns, fewer than the header (3): '8\\tneg'")]
    assert parser.header(str(tmp_path / "a.csv")) == ["text", "label"]


def test_each_file_has_its_own_order_of_columns_and_may_lack_the_label(tmp_path: Path) -> None:
    parser = make("csv", fields=["text", "label"], start_line=1)
    assert rows_of(parser, tmp_path / "a.tsv", "# made by hand\ntext\tlabel\na\t1\n") == [["a", "1"]]
    assert rows_of(parser, tmp_path / "b.tsv", "# made by hand\nid\ttext\n3\tb\n") == [["b"]]


@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_the_header_is_read_once_whatever_the_size_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    text = "label\ttext\n" + "".join(f"{index}\tt{index}\n" for index in range(9))
    found = rows_of(make("csv", fields=["text"]), tmp_path / "a.tsv", text)
    assert found == [[f"t{index}"] for index in range(9)]


def test_a_name_that_is_not_in_the_header_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fields: there is no column 'lable'\. Did you mean 'label'\?"):
        rows_of(make("csv", fields=["text", "lable"]), tmp_path / "a.tsv", "text\tlabel\na\t1\n")


def test_a_header_that_another_delimiter_cuts_says_which(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="delimiter: splits the first line into only one column.*Set delimiter: ','"):
        rows_of(make("csv", fields=["text", "label"]), tmp_path / "a.csv", 'id,"text",label\n1,good,1\n')


def test_a_pipe_is_refused_since_raw_data_are_read_several_times(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tsv")
    with pytest.raises(ConfigError, match="is a pipe or a device, not a file"):
        read(make("csv"), tmp_path / "a.tsv")


def test_an_array_read_as_lines_names_the_parser_of_arrays() -> None:
    assert "use parser: json." in make("jsonl", fields=["t"]).remedy("is a list, not an object")


def test_a_parser_of_ones_own_may_fill_one_list_for_all_rows(tmp_path: Path) -> None:
    class Mine(RowParser):
        def read(self, path: str) -> Any:
            row = [""]
            for number, row[0] in enumerate("abc"):
                yield number, row

    assert read(Mine(Mine.Parameters()), tmp_path)[0] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1, ["a", 2])], r"\(1, \['a', 2\]\) as a row"),
        ([(1, ["a"]), (2, [b"b"])], r"\[b'b'\] as a row"),
        ([(1, "ab")], "'ab' as a row"),
        ([["a", "b"]], r"\('a', 'b'\) as a row|'b' as a row"),
        ([["a", "b", "c"]], r"\['a', 'b', 'c'\] as a row"),
        ([None], "None as a row"),
        ([(1, None)], r"\(1, None\) as a row"),
        ([(1, ["a"]), (1, ["b"])], "the number 1 for a row after a later one"),
        ([(2, ["a"]), (1, ["b"])], "the number 1 for a row after a later one"),
    ],
)
def test_what_is_no_numbered_row_of_texts_is_the_fault_of_its_parser(rows: Any, words: str, tmp_path: Path) -> None:
    class Mine(RowParser):
        def read(self, path: str) -> Any:
            yield from rows

    with pytest.raises(ConfigError, match=rf"parser: 'Mine\.read' returns ({words})\. "):
        read(Mine(Mine.Parameters()), tmp_path)
    Mine.read = lambda self, path: None  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(ConfigError, match=r"parser: 'Mine\.read' returns None\. Yield"):
        read(Mine(Mine.Parameters()), tmp_path)
