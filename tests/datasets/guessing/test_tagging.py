"""Words and tags, one word per line, and what such files have besides; tags in other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.columns import columns_of
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.reading import Table, read_table

SENTENCE = ["Ann\tB-PER", "Lee\tI-PER", "sings\tO"]
ROW = ["Ann Lee sings", "B-PER I-PER O"]


def read(path: Path, *sentences: list[str], between: str = "") -> Table:
    path.write_text(f"\n{between}\n".join("\n".join(lines) for lines in sentences) + "\n")
    return read_table(str(path), Wishes())[0]


@pytest.mark.parametrize("between", ["", "\t", "  ", "\n-DOCSTART- O\n", "\n# sent 7"])
def test_words_and_tags_are_sentences_whatever_is_between_them(tmp_path: Path, between: str) -> None:
    found = read(tmp_path / "f.txt", *[SENTENCE] * 25, between=between)
    assert (found.tagged, found.rows) == (True, [ROW] * 25)


def test_names_of_columns_above_sentences_are_left_out_and_told(tmp_path: Path) -> None:
    found = read(tmp_path / "f.txt", ["word\ttag", *SENTENCE], *[SENTENCE] * 24)
    assert (found.rows, found.left_out) == ([ROW] * 25, ("a line without a word and a tag: 'word tag'",))


def test_tags_in_small_letters_or_with_another_sign_are_tags(tmp_path: Path) -> None:
    found = read(tmp_path / "f.txt", SENTENCE, ["Ann b_PER", "Lee i-PER", "sings o"])
    assert found.rows == [ROW, ROW]


def test_a_blank_in_a_word_before_a_tab_does_not_cut_it(tmp_path: Path) -> None:
    assert read(tmp_path / "f.txt", SENTENCE, ["New York\tB-LOC"]).rows[1] == ["NewYork", "B-LOC"]


def test_a_word_without_a_tag_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 97, 'Lee', does not end in a tag"):
        read(tmp_path / "f.txt", *[SENTENCE] * 24, ["Lee", *SENTENCE])
    with pytest.raises(ConfigError, match="line 2, 'Lee', does not end in a tag"):
        read(tmp_path / "f.conll", ["Ann\tNE", "Lee"])


def test_words_without_sentences_are_no_classes() -> None:
    rows = [["x" * (index + 1), ("O", "B-PER", "I-PER")[index % 3]] for index in range(60)]
    table = Table("f.csv", ["word", "tag"], named=True, rows=rows)
    with pytest.raises(ConfigError, match=r"column 'tag' has the tag of a word in each row \(O, I-PER, B-PER\)"):
        columns_of(table, Wishes())
    assert columns_of(table, Wishes(task="class"))[0].task == "class"


def test_one_tag_for_all_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="is 'O' for every word"):
        columns_of(Table("f", ["words", "tags"], named=True, rows=[["a b", "O O"]] * 30, tagged=True), Wishes())
