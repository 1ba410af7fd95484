"""cut_file, sub_data, diff_data: text files compared and cut by whole lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.loaders.parsers.files import open_raw
from xdpx.utils import io
from xdpx.utils.compressed import compressed


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    left, right = tmp_path / "left.txt", tmp_path / "right.txt"
    left.write_text("a\nb\nb\nb\nc\n")
    right.write_text("c\nb\nd\r\na")
    return str(left), str(right)


def test_parts_hold_all_lines_in_order_and_differ_by_one_at_most(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"line {index}\n" for index in range(7)) + "last")
    assert main(["cut_file", str(tmp_path / "train.tsv"), "3", str(tmp_path / "parts"), "4"]) == 0
    parts = [(tmp_path / "parts" / f"train_{index}.tsv").read_text() for index in (4, 5, 6)]
    assert "".join(parts).split("\n") == [*(f"line {index}" for index in range(7)), "last", ""]
    assert sorted(part.count("\n") for part in parts) == [2, 3, 3]


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["9", "out"], "N: is 9, but .* has 5 rows"), (["0", "out"], "N: is '0'"), (["2", "out", "-"], "FIRST: is '-'")],
)
def test_a_file_that_cannot_be_cut_so_is_refused(files: tuple[str, str], words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        main(["cut_file", files[0], *words])


def test_lines_that_the_other_file_lacks_are_printed_in_order(files: tuple[str, str], capsys) -> None:
    assert main(["sub_data", files[1], files[0]]) == 0
    assert capsys.readouterr().out == "d\n"


def test_files_are_compared_whatever_the_order_of_their_lines(files: tuple[str, str], capsys) -> None:
    assert main(["diff_data", *files]) == 1
    assert capsys.readouterr().out.splitlines() == ["-- b  (2x)", "++ d"]
    assert main(["diff_data", files[0], files[0]]) == 0
    assert capsys.readouterr().out == "no line differs\n"


@pytest.mark.parametrize("name", ["sub_data", "diff_data"])
def test_what_is_no_file_is_refused(name: str, files: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"gone\.txt: is not a file"):
        main([name, files[0], "gone.txt"])


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_compressed_files_are_read_decompressed_and_cut_into_compressed_parts(
    tmp_path: Path, ending: str, capsys
) -> None:
    lines = [f"line {index}\n" for index in range(5)]
    plain, packed = tmp_path / "train.tsv", tmp_path / f"train.tsv{ending}"
    plain.write_text("".join(lines))
    with packed.open("wb") as file, compressed(file, str(packed)) as out:
        out.write(plain.read_bytes())
    assert io.lines(packed) == 5
    assert main(["diff_data", str(plain), str(packed)]) == 0
    assert main(["cut_file", str(packed), "2", str(tmp_path / "parts")]) == 0
    parts = [str(tmp_path / "parts" / f"train_{index}.tsv{ending}") for index in (0, 1)]
    with open_raw(parts[0]) as first, open_raw(parts[1]) as second:
        assert first.read() + second.read() == plain.read_bytes()


@pytest.mark.parametrize(
    ("text", "torn"),
    [
        ("a\nb\nc\n\nd\n", "train_1.txt"),
        ("a\nb\n\nc\nd\n", ""),
        ("a\n\nb\n\n", ""),
        ("a\nb\nc\n\n", ""),
        ("a\nb\n", ""),
    ],
)
def test_parts_that_begin_between_two_blank_lines_are_told(tmp_path: Path, capsys, text: str, torn: str) -> None:
    (tmp_path / "train.txt").write_text(text)
    assert main(["cut_file", str(tmp_path / "train.txt"), "2", str(tmp_path / "parts")]) == 0
    told = capsys.readouterr().err
    assert f"what begins within one is {tmp_path}/parts/{torn}: let" in told if torn else not told


def test_rows_of_a_csv_stay_whole_and_every_part_repeats_the_header(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text('text,label\n"a\nb",1\n5" tv,0\n"c ""x"",\n",1\nd,0')
    assert main(["cut_file", str(path), "2", str(tmp_path), "--header"]) == 0
    assert (tmp_path / "train_0.csv").read_text() == 'text,label\n"a\nb",1\n5" tv,0\n'
    assert (tmp_path / "train_1.csv").read_text() == 'text,label\n"c ""x"",\n",1\nd,0\n'


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.csv", b'a,1\n"b,0\nc,1\n', r"x\.csv:2: is not quoted csv"),
        ("x.png", b"\x89PNG\0\n\n", "holds NUL bytes"),
        ("x.tsv", b"\x1f\x8b\x08\n\n", "is compressed by gzip"),
        ("x.tsv.gz", b"text\n\n", "truncated or damaged"),
    ],
)
def test_files_that_are_no_text_or_whose_quotes_are_open_are_not_cut(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        main(["cut_file", str(tmp_path / name), "1", str(tmp_path / "parts")])


def test_a_header_that_only_the_first_part_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\nb\t0\n")
    assert main(["cut_file", str(tmp_path / "train.tsv"), "2", str(tmp_path)]) == 0
    assert "--header would repeat it" in caplog.text
