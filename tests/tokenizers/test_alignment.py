"""Finding tokens in the text they came from."""

from __future__ import annotations

import pytest

from xdpx.tokenizers.alignment import aligned


@pytest.mark.parametrize(
    ("text", "tokens", "found"),
    [
        ("Bob sees", ["bob", "sees"], ["Bob", "sees"]),
        ("Café İx", ["cafe", "ix"], ["Café", "İx"]),
        ("unhappily so", ["un", "##happi", "##ly", "so"], ["un", "happi", "ly", "so"]),
        ("in 20240131 or", ["in", "NUM8", "or"], ["in", "20240131", "or"]),
        ("a 12345, b", ["a", "NUM5", ",", "b"], ["a", " 12345", ",", "b"]),
        ("on 12345 67890x", ["on", "NUM5", "NUM5", "x"], ["on", " 12345 67890", " 12345 67890", "x"]),
        ("7592 2088", ["hello", "world"], ["7592", "2088"]),
        ("x", ["what", "now"], ["x", "x"]),
        ("", [], []),
    ],
)
def test_tokens_are_found_in_their_text(text: str, tokens: list[str], found: list[str]) -> None:
    assert [text[begin:end] for begin, end in aligned(tokens, text)] == found
