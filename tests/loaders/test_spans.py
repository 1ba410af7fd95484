"""Parts of a file of lines hold together what the whole file holds, with the same numbers, whatever the lines are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from xdpx.loaders.parsers import files
from xdpx.loaders.parsers.base import BadLine, Row, Span
from xdpx.loaders.parsers.csv import CSVParser
from xdpx.loaders.parsers.json import JSONLParser
from xdpx.loaders.parsers.lines import LineParser
from xdpx.loaders.parsers.spans import count_lines

ODD = [
    b"",
    b"a\tx",
    b"b c\ty\r",
    b"\r",
    b"\xef\xbb\xbfz\ty",
    b"\xff\xfe\tx",
    b"one",
    b"a\tb\tc\td",
    b'"q\tx',
    b"\0\tx",
    b"w" * 90,
]
"""Lines that parts may begin or end with: blank, CRLF, a byte order mark in the middle, no UTF-8, NUL, too long."""

Read = list[tuple[int, Row] | BadLine]


def content(seed: int) -> bytes:
    draw = random.Random(seed)
    lines = [draw.choice(ODD) for _ in range(draw.choice([0, 1, 2, 5, 40]))]
    return draw.choice([b"", b"\xef\xbb\xbf"]) + b"\n".join(lines) + draw.choice([b"", b"\n", b"\r\n", b"\n\n"])


def rows_of(parser: LineParser, blocks: Any, before: int = 0) -> Read:
    found: Read = []
    for block in blocks:
        rows = parser.parse(block)
        found += [(line + before, row) for line, row in zip(rows.lines, rows.rows, strict=True)]
        found += [BadLine(line + before, problem) for line, problem in rows.bad]
    return found


def in_parts(parser: LineParser, path: str, count: int) -> Read:
    found: Read = []
    before, end = 0, 0
    for index in range(count):
        span = parser.span(path, index, count)
        assert span is not None
        assert span.start == end
        found += rows_of(parser, parser.blocks_of(path, span), before)
        before, end = before + count_lines(path, span), span.end
    assert end == Path(path).stat().st_size
    return found


def sorted_rows(found: Read) -> list[Any]:
    return sorted(found, key=lambda each: (each[0], isinstance(each, BadLine)))


@pytest.mark.parametrize("start_line", [0, 1, 3])
def test_parts_are_the_file_for_any_lines(tmp_path: Path, start_line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 16)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 80)
    parser = CSVParser(CSVParser.Parameters(start_line=start_line))
    path = str(tmp_path / "raw.tsv")
    for seed in range(60):
        Path(path).write_bytes(content(seed))
        if parser.span(path, 0, 1) is None:
            continue  # one line that ends in a carriage return: it is converted
        whole = sorted_rows(rows_of(parser, parser.blocks(path)))
        for count in (1, 2, 3, 8):
            assert sorted_rows(in_parts(parser, path, count)) == whole, (seed, count)


def test_every_part_knows_the_header(tmp_path: Path) -> None:
    path = str(tmp_path / "raw.tsv")
    Path(path).write_text("about\nlabel\ttext\n" + "".join(f"{n}\tword {n}\n" for n in range(20)))
    parser = CSVParser(CSVParser.Parameters(start_line=1, fields=["text", "label"]))
    assert in_parts(parser, path, 8) == [(n + 3, [f"word {n}", str(n)]) for n in range(20)]


def test_what_can_only_be_read_from_the_front_has_no_parts(tmp_path: Path) -> None:
    plain, packed = tmp_path / "raw.csv", tmp_path / "raw.csv.gz"
    plain.write_bytes("a,b\n中文,c\n".encode("gbk"))
    packed.write_bytes(b"\x1f\x8b")
    lines = LineParser(LineParser.Parameters())
    assert lines.span(str(packed), 0, 2) is None
    assert LineParser(LineParser.Parameters(encoding="gbk")).span(str(plain), 0, 2) is None
    assert CSVParser(CSVParser.Parameters(delimiter=",")).span(str(plain), 0, 2) is None
    assert JSONLParser(JSONLParser.Parameters(fields=["a"])).span(str(plain), 0, 1) == Span(0, 11)


def test_a_parser_with_blocks_of_its_own_is_not_cut(tmp_path: Path) -> None:
    class Own(LineParser):
        def blocks(self, path: str) -> Any:
            return super().blocks(path)

    (tmp_path / "raw.txt").write_text("a\n")
    assert Own(Own.Parameters()).span(str(tmp_path / "raw.txt"), 0, 2) is None
