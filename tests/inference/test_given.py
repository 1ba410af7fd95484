"""Rows that a caller passes in memory."""

from __future__ import annotations

from typing import Any

import pytest

from xdpx.inference.given import rows_of
from xdpx.loaders.texts import RankLoader


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([("q", "a"), ("r", "b"), ("q", "c")], ["q", "r", "q"]),
        ([("", "a"), (" ", "b")], ["0", "1"]),
        ([("1", "q", "a"), ("1", "r", "b")], ["1", "1"]),
        ([{"text1": "q", "text2": "a"}, {"query_id": "7", "text1": "q", "text2": "b"}], ["q", "7"]),
    ],
)
def test_candidates_without_a_name_are_ranked_with_those_of_the_same_query(given: list[Any], names: list[str]) -> None:
    loader = RankLoader(RankLoader.Parameters(tokenizer="space"))
    assert [row[0] for row in rows_of(given, loader)] == names
    assert {len(row) for row in rows_of(given, loader)} == {3}
