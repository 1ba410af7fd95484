"""Files of rows with several labels, and of words with tags, are read rightly or refused, as those of one label are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.inference.raw_reading import reading_of

TOPICS = ["film", "music", "plot"]
TAGS = ["O", "B-LOC", "I-LOC"]


def read(path: Path, content: str, labels: list[str], **values: Any) -> str:
    """Return what is said of a file, or "" if it is read."""
    path.write_text(content, encoding="utf-8")
    keys = {"data_source": str(path.parent), "data_dir": "data", "processor": "single", "tokenizer": "space", **values}
    run = resolve({**keys, "max_len": 9}, "x-prepro", source="test", strict=False, paths=False)
    try:
        reading_of(str(path), run, given=set(), labels=labels, key="data", source="test")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("text\tlabels\ngood\tfilm\n", "looks like the names of columns: 'text', 'labels'"),
        ("1\tgood one\n2\ta, b, c\n3\tnot bad\n4\tthe end\n", "has no label of training, such as 'good one'"),
        ("film,plot\tgood one\nfilm\ta, b\nplot\tnot bad\n\tthe end\n", "has no label of training"),
        ("good\tfilm, plot\nbad\t\nnew\tfilm,style\nold\tstyle\n", ""),
        ("good\tstyle\nbad\tstyle\nnew\tstyle,art\nold\tstyle\n", ""),
        ("good\t\nbad\t\nnew\t\nold\t\n", ""),
        ("good, fine\nbad\nnew\nold, older\n", ""),
    ],
)
def test_several_labels_are_looked_for_one_by_one(tmp_path: Path, content: str, told: str) -> None:
    said = read(tmp_path / "a.tsv", content, TOPICS, loader="single", label_separator=",")
    assert told in said if told else not said


def test_a_first_row_with_known_labels_is_no_header_to_skip(tmp_path: Path) -> None:
    keys = {"loader": "single", "label_separator": ",", "start_line": 1}
    assert "leaves out a row" in read(tmp_path / "a.tsv", "good\tplot,film\nbad\tfilm\n", TOPICS, **keys)
    assert not read(tmp_path / "b.tsv", "text\tlabels\nbad\tfilm\n", TOPICS, **keys)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("we see x\n\nx J. is\n", "has no tag of training, such as 'x'"),
        ("we see\nParis is\n", "has no tag of training, such as 'see'"),
        ("we see o\n\nJ. o\n\nthe end is o\n", "plain sentences do: 'we see o'"),
        ("we see x\nJ. is\nthe end is near\n", "plain sentences do: 'we see x'"),
        ("word\ttag\nwe\tO\n", "the first line looks like the names of columns: 'word', 'tag'"),
        ("we\tO\nParis\tB-CITY\n\nJ.\tB-PER\n", ""),
        ("we\tNN\nParis\tNN\n\nJ.\tNN\n", ""),
        ("we\nsee\n\nParis\n", ""),
        ("we\tO\nParis\n", ""),  # the line is refused when the file is read
    ],
)
def test_plain_sentences_are_not_read_as_words_with_tags(tmp_path: Path, content: str, told: str) -> None:
    said = read(tmp_path / "a.txt", content, TAGS, loader="tagged")
    assert told in said if told else not said
    assert not told or "names of columns" in told or 'set parser: "none"' in said


def test_sentences_without_a_tab_are_no_words_with_blanks(tmp_path: Path) -> None:
    keys = {"loader": "tagged", "delimiter": "\t"}
    assert "most lines have no '\\t', but blanks" in read(tmp_path / "a.txt", "we see x\nParis is\n", TAGS, **keys)
    assert not read(tmp_path / "b.txt", "we\nNew York\nsee\n", TAGS, **keys)


def test_a_header_of_questions_is_refused(tmp_path: Path) -> None:
    keys = {"loader": "qa", "processor": "bert_qa", "parser": "csv"}
    assert "names of columns" in read(tmp_path / "a.tsv", "question\tcontext\nwho?\tBob is it.\n", [], **keys)
    assert not read(tmp_path / "b.tsv", "who?\tBob is it.\n", [], **keys)
