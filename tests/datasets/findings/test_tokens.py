"""Texts of which a vocabulary knows little, or a tokenizer cuts nothing."""

from __future__ import annotations

import pytest

from xdpx.datasets.findings.tokens import Tally, cut_tokens, empty_texts, joined_sentences, tokens, untrained_unknown


@pytest.mark.parametrize(
    ("unknown", "trained", "ready", "severity"),
    [
        (670, True, True, "fault"), (670, False, True, "warning"), (670, True, False, "warning"),
        (120, True, True, "warning"), (120, False, False, None), (60, True, True, None),
    ],
)  # fmt: skip
def test_unknown_tokens_are_told_by_their_share(unknown: int, trained: bool, ready: bool, severity: str | None) -> None:
    tally = Tally(texts=50, characters=5000, tokens=1000, unknown=unknown)
    found = [each.severity for each in tokens("a", tally, trained=trained, ready=ready)]
    assert found == ([severity] if severity else [])


@pytest.mark.parametrize(("trained", "severity"), [(True, "fault"), (False, "warning")])
def test_texts_without_a_token_are_told(trained: bool, severity: str) -> None:
    (found,) = tokens("a", Tally(texts=3), trained=trained, ready=False)
    assert (found.code, found.severity) == ("no_text", severity)
    assert not list(tokens("a", Tally(), trained=trained, ready=False))


def test_a_few_tokens_show_nothing() -> None:
    assert not list(tokens("a", Tally(texts=3, characters=500, tokens=9, unknown=9), trained=True, ready=True))


def test_texts_that_are_not_cut_are_told() -> None:
    (found,) = tokens("a", Tally(texts=200, characters=6000, tokens=220), trained=True, ready=False)
    assert (found.code, "27 characters" in found.problem) == ("long_tokens", True)


def test_short_texts_that_became_one_token_each_are_told_but_words_are_not() -> None:
    assert list(tokens("a", Tally(texts=200, characters=2000, tokens=210), trained=True, ready=False))
    assert not list(tokens("a", Tally(texts=200, characters=1200, tokens=210), trained=True, ready=False))


def test_an_unknown_token_that_training_never_sees_is_told() -> None:
    trained = {"train": True, "dev": False}
    bare, seen = Tally(tokens=1000), Tally(tokens=1000, unknown=1)
    dev = Tally(tokens=1000, unknown=50)
    assert [each.place for each in untrained_unknown({"train": bare, "dev": dev}, trained=trained)] == ["dev"]
    assert not list(untrained_unknown({"train": seen, "dev": dev}, trained=trained))
    assert not list(untrained_unknown({"train": bare, "dev": bare}, trained=trained))


@pytest.mark.parametrize(("empty", "severity"), [(0, None), (1, "note"), (20, "warning")])
def test_a_few_texts_without_a_token_are_told(empty: int, severity: str | None) -> None:
    found = [each.severity for each in empty_texts("a", Tally(texts=1000, tokens=9000, empty=empty))]
    assert found == ([severity] if severity else [])


def test_a_max_len_that_cuts_much_is_told_with_what_would_keep_all() -> None:
    (found,) = cut_tokens("a", Tally(texts=100, tokens=9000, cut=4500, longest=120, max_len=45))
    assert (found.code, found.problem[:3], "has 120" in found.remedy) == ("cut_tokens", "50%", True)
    assert not list(cut_tokens("a", Tally(texts=100, tokens=9000, cut=900, longest=120, max_len=45)))


@pytest.mark.parametrize(("windows", "told"), [(297, True), (6, False)])
def test_a_tagged_file_without_blank_lines_is_told(windows: int, told: bool) -> None:
    found = list(joined_sentences("a", Tally(texts=1, tokens=9243, max_len=64, windows=windows)))
    assert [each.code for each in found] == (["giant_text"] if told else [])
