"""Records of rows: labels, bad lines, and loaders of a user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.store import Store
from xdpx.loaders import loaders
from xdpx.loaders.base import Loader, Record
from xdpx.loaders.parsers.base import BadLine, Row, Rows
from xdpx.loaders.texts import SingleLoader
from xdpx.run import main


def make(kind: type[Loader], **values: Any) -> Loader:
    return kind(kind.Parameters(tokenizer="space", **values))


def rows(*given: Row) -> Rows:
    return Rows(list(given), range(1, len(given) + 1), [])


def test_labels_lose_surrounding_blanks_and_keep_their_case() -> None:
    records = make(SingleLoader).records(rows(["Good Film", " POS "], ["Bad", "neg"]), labelled=True)
    assert records.fields == {"text": ["Good Film", "Bad"]}
    assert records.targets == ["POS", "neg"]


def test_an_empty_separator_of_labels_separates_nothing() -> None:
    loader = make(SingleLoader, label_separator="")
    assert (loader.several_labels, loader.labels_of("pos")) == (False, ["pos"])


def test_a_pair_has_two_texts() -> None:
    records = make(loaders["pair"]).records(rows(["a", "b", "1"]), labelled=True)
    assert (records.fields, records.targets) == ({"text1": ["a"], "text2": ["b"]}, ["1"])


def test_a_loader_of_more_columns_than_texts_names_each_column() -> None:
    class Titled(Loader):
        num_sections = 2  # type: ignore[assignment]

    assert (make(Titled).column_names, make(loaders["pair"]).column_names) == (("text1", "text2"),) * 2
    assert make(Titled).expected() == "text1, text2 and a label, or text1, text2 alone"


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
    assert (records.fields["text"], records.targets) == (["title: a"], ["X"])
    assert records.bad == [BadLine(2, "has no title")]


def test_logits_stand_between_the_texts_and_the_label() -> None:
    single = make(loaders["single_with_logits"]).records(
        rows(["a b", "[0.5, -1.25]", "Pos"], ["c", "[1, 2e-1]", "neg"]), labelled=True
    )
    assert (single.fields, single.targets) == ({"text": ["a b", "c"]}, ["Pos", "neg"])
    assert single.logits == [[0.5, -1.25], [1.0, 0.2]]
    pair = make(loaders["pair_with_logits"]).records(rows(["a", "b", "[1, 2]", "1"]), labelled=True)
    assert (pair.fields, pair.targets, pair.logits) == ({"text1": ["a"], "text2": ["b"]}, ["1"], [[1.0, 2.0]])


def test_logits_and_labels_may_be_missing() -> None:
    loader = make(loaders["single_with_logits"])
    seen = [
        loader.is_labelled(row) for row in (["a"], ["a", "1"], ["a", "[1, 2]"], ["a", "[1, 2]", "1"], ["a", "b", "1"])
    ]
    assert seen == [False, True, False, True, None]
    assert loader.records(rows(["a", "1"]), labelled=True).logits == [[]]
    assert loader.records(rows(["a", "[1, 2]"]), labelled=False).logits == [[1.0, 2.0]]


def test_records_that_are_dropped_take_their_logits_with_them() -> None:
    found = make(loaders["single_with_logits"]).records(rows(["a", "[1, 2]", " "], ["b", "[3, 4]", "1"]), labelled=True)
    assert (found.fields["text"], found.logits) == (["b"], [[3.0, 4.0]])
    assert found.bad == [BadLine(1, "has an empty label")]


@pytest.mark.parametrize("cell", ["[]", "[1, NaN]", "[1, Infinity]", "[1, true]", '["x"]', "[1, 2", "[[1]]"])
def test_a_cell_that_is_no_list_of_finite_numbers_makes_a_bad_line(cell: str) -> None:
    found = make(loaders["single_with_logits"]).records(rows(["a", cell, "1"], ["b", "[1]", "1"]), labelled=True)
    assert found.fields["text"] == ["b"]
    assert found.bad == [BadLine(1, f"has logits that are not a list of finite numbers: {cell}")]


@pytest.mark.parametrize("fields", [["body"], ["body", "said"], ["body", "said", "class"], ["body", "class"]])
def test_columns_are_picked_by_name_with_logits_or_without(fields: list[str], tmp_path: Path) -> None:
    row = {"body": "a b", "said": "[1.5, -2]", "class": "pos", "other": "x"}
    (tmp_path / "raw").mkdir()
    for split in ("train", "dev"):
        lines = ["\t".join(row), "\t".join(row.values()), "c\t[0, 1]\tneg\ty"]
        (tmp_path / f"raw/{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    values = {
        "data_source": str(tmp_path / "raw"),
        "data_dir": str(tmp_path / "data"),
        "fields": fields,
        "workers": 1,
        "parser": "csv",
        "loader": "single_with_logits",
        "processor": "single_with_logits",
        "tokenizer": "space",
        "max_len": 8,
    }
    (tmp_path / "prepro.json").write_text(json.dumps(values))
    assert main(["x-prepro", str(tmp_path / "prepro.json")]) == 0
    samples = Store.open(str(tmp_path / "data/train.pt")).take(np.arange(2))
    assert samples.sample(0)["logits"] == ([1.5, -2.0] if "said" in fields else [])
    assert ("target" in samples) == ("class" in fields)


def test_too_many_names_of_columns_are_refused_with_what_there_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.txt").write_text("a\tb\tc\td\n")
    values = {
        "data_source": str(tmp_path),
        "data_dir": str(tmp_path / "data"),
        "fields": ["a", "b", "c", "d"],
        "loader": "single_with_logits",
        "processor": "single_with_logits",
        "tokenizer": "space",
        "max_len": 8,
    }
    (tmp_path / "prepro.json").write_text(json.dumps(values))
    assert main(["x-prepro", str(tmp_path / "prepro.json")]) == 2
    assert "takes: text, and perhaps logits and a label." in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        "a",
        {},
        {"text": 3, "target": "1"},
        {"text": "a"},
        {"text": "a", "target": 1},
        {"text": ["a"], "target": "1"},
    ],
)
def test_a_parse_of_ones_own_that_returns_no_record_is_refused(odd: Any) -> None:
    class Mine(SingleLoader):
        def parse(self, columns: Row, labelled: bool) -> Record:
            return odd

    with pytest.raises(
        ConfigError, match=r"loader: 'Mine\.parse' returns .* for line 1\. Return a dict with texts for text"
    ):
        make(Mine).records(rows(["a", "1"]), labelled=True)
