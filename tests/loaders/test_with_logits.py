"""Rows with the logits of a teacher: where they may stand, and what is no such list."""

from __future__ import annotations

from typing import Any

import pytest

from xdpx.loaders import loaders
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import BadLine, Row, Rows


def make(name: str, **values: Any) -> Loader:
    kind = loaders[name]
    return kind(kind.Parameters(tokenizer="space", **values))  # type: ignore[no-any-return]


def rows(*given: Row) -> Rows:
    return Rows(list(given), range(1, len(given) + 1), [])


def test_logits_stand_between_the_texts_and_the_label() -> None:
    single = make("single_with_logits").records(
        rows(["a b", "[0.5, -1.25]", "Pos"], ["c", "[1, 2e-1]", "neg"]), labelled=True
    )
    assert (single.fields, single.targets) == ({"text": ["a b", "c"]}, ["pos", "neg"])
    assert single.logits == [[0.5, -1.25], [1.0, 0.2]]
    pair = make("pair_with_logits").records(rows(["a", "b", "[1, 2]", "1"]), labelled=True)
    assert (pair.fields, pair.targets, pair.logits) == ({"text1": ["a"], "text2": ["b"]}, ["1"], [[1.0, 2.0]])


def test_logits_and_labels_may_be_missing() -> None:
    loader = make("single_with_logits")
    seen = [
        loader.is_labelled(row) for row in (["a"], ["a", "1"], ["a", "[1, 2]"], ["a", "[1, 2]", "1"], ["a", "b", "1"])
    ]
    assert seen == [False, True, False, True, None]
    assert loader.records(rows(["a", "1"]), labelled=True).logits == [[]]
    assert loader.records(rows(["a", "[1, 2]"]), labelled=False).logits == [[1.0, 2.0]]


def test_records_that_are_dropped_take_their_logits_with_them() -> None:
    found = make("single_with_logits").records(rows(["a", "[1, 2]", " "], ["b", "[3, 4]", "1"]), labelled=True)
    assert (found.fields["text"], found.logits) == (["b"], [[3.0, 4.0]])
    assert found.bad == [BadLine(1, "has an empty label")]


@pytest.mark.parametrize("cell", ["[]", "[1, NaN]", "[1, Infinity]", "[1, true]", '["x"]', "[1, 2", "[[1]]"])
def test_a_cell_that_is_no_list_of_finite_numbers_makes_a_bad_line(cell: str) -> None:
    found = make("single_with_logits").records(rows(["a", cell, "1"], ["b", "[1]", "1"]), labelled=True)
    assert found.fields["text"] == ["b"]
    assert found.bad == [BadLine(1, f"has logits that are no list of finite numbers: {cell}")]
