"""Records of rows: labels, bad lines, and loaders of a user's own."""

from __future__ import annotations

from typing import Any

import pytest

from xdpx.loaders import loaders
from xdpx.loaders.base import Loader, Record
from xdpx.loaders.parsers.base import BadLine, Row, Rows
from xdpx.loaders.single import SingleLoader


def make(kind: type[Loader], **values: Any) -> Loader:
    return kind(kind.Parameters(tokenizer="space", **values))


def rows(*given: Row) -> Rows:
    return Rows(list(given), range(1, len(given) + 1), [])


def test_labels_lose_case_and_surrounding_blanks() -> None:
    records = make(SingleLoader).records(rows(["Good Film", " POS "], ["Bad", "neg"]), labelled=True)
    assert records.fields == {"text": ["Good Film", "Bad"]}
    assert records.targets == ["pos", "neg"]


def test_a_pair_has_two_texts() -> None:
    records = make(loaders["pair"]).records(rows(["a", "b", "1"]), labelled=True)
    assert (records.fields, records.targets) == ({"text1": ["a"], "text2": ["b"]}, ["1"])


def test_lines_with_another_number_of_columns_are_bad_and_blank_ones_are_nothing() -> None:
    records = make(SingleLoader).records(rows(["a", "1"], [""], ["b"], ["c", "1", "x"], ["d", " "]), labelled=True)
    assert (records.fields["text"], list(records.lines)) == (["a"], [1])
    assert records.bad == [
        BadLine(3, "has 1 column, not 2: 'b'"),
        BadLine(4, "has 3 columns, not 2: 'c\\t1\\tx'"),
        BadLine(5, "has an empty label"),
    ]


def test_an_empty_text_is_a_text_where_lines_have_one_column() -> None:
    assert make(SingleLoader).records(rows([""], ["a"]), labelled=False).fields == {"text": ["", "a"]}


@pytest.mark.parametrize(
    ("name", "row", "labelled"),
    [
        ("single", ["a"], False),
        ("single", ["a", "1"], True),
        ("single", ["a", "b", "1"], None),
        ("pair", ["a", "b"], False),
        ("pair", ["a", "b", "1"], True),
        ("corpus", ["a"], False),
        ("corpus", ["a", "1"], None),
    ],
)
def test_the_number_of_columns_tells_whether_there_is_a_label(name: str, row: Row, labelled: bool | None) -> None:
    assert make(loaders[name]).is_labelled(row) is labelled


class Titled(Loader):
    """A loader as a user would write it."""

    def parse(self, columns: Row, labelled: bool) -> Record:
        if not columns[0]:
            raise ValueError("has no title")
        return {"text": f"title: {columns[0]}", **({"target": columns[1]} if labelled else {})}


def test_an_own_loader_overrides_parse_alone() -> None:
    records = make(Titled).records(rows(["a", "X"], ["", "y"]), labelled=True)
    assert (records.fields["text"], records.targets) == (["title: a"], ["x"])
    assert records.bad == [BadLine(2, "has no title")]
