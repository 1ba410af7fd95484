"""NLTK's own rules, without any of its data."""

from __future__ import annotations

import copy
import sys

import pytest

from xdpx.config.faults import ConfigError
from xdpx.tokenizers import tokenizers

NLTK = tokenizers["nltk"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("tweet", ["i", "don't", "like", "#mondays", ":D", "!"]),
        ("treebank", ["i", "do", "n't", "like", "#", "mondays", ":", "d", "!"]),
        ("toktok", ["i", "don", "'", "t", "like", "#mondays", ":", "d", "!"]),
    ],
)
def test_words_are_those_of_the_rules_that_are_named(rules: str, expected: list[str]) -> None:
    pytest.importorskip("nltk")
    known = NLTK(NLTK.Parameters(nltk_rules=rules))
    assert known.tokenize("I don't like #Mondays :D !") == expected
    assert copy.deepcopy(known).tokenize("A b") == ["a", "b"]


def test_case_stays_where_it_is_wanted() -> None:
    pytest.importorskip("nltk")
    assert NLTK(NLTK.Parameters(lower=False)).tokenize("So GOOD") == ["So", "GOOD"]


def test_a_missing_package_is_one_sentence_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.tokenize.casual", None)
    with pytest.raises(ConfigError, match=r"'nltk', which is not installed\. Install it: pip install 'xdpx\[nltk\]'"):
        NLTK(NLTK.Parameters()).tokenize("a b")
