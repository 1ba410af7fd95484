"""cut_file, sub_data, diff_data: text files compared and cut by whole lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError


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
    [(["9", "out"], "N: is 9, but .* has 5 lines"), (["0", "out"], "N: is '0'"), (["2", "out", "-"], "FIRST: is '-'")],
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
