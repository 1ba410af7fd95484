"""Letters that were decoded wrongly, or lost, are told of where a file has many."""

from __future__ import annotations

import pytest

from xdpx.datasets.findings.decoding import wrong_characters
from xdpx.datasets.findings.raw_files import Head

FRENCH, CHINESE = "très bon film, génial", "这家酒店很好"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (FRENCH, None), (CHINESE, None), ("ΑΒΓ Ã la carte", None), ("plain", None),
        (FRENCH.encode().decode("cp1252"), "encoding"), (CHINESE.encode().decode("latin-1"), "encoding"),
        (FRENCH.encode("cp1252").decode("utf-8", "replace"), "lost_characters"),
        ("what?? no?", None),
    ],
)  # fmt: skip
def test_texts_with_other_letters_than_were_meant_are_told(text: str, code: str | None) -> None:
    found = list(wrong_characters("f", Head(1, [[text, "1"], ["plain", "0"]] * 3)))
    assert [each.code for each in found] == ([code] if code else [])


def test_a_text_that_quotes_a_wrong_letter_is_not_told_of() -> None:
    rows = [["plain", "1"]] * 200 + [["\ufffd is U+FFFD, and Ã© is é", "0"]]
    assert list(wrong_characters("f", Head(1, rows))) == []


def test_letters_that_became_question_marks_are_told() -> None:
    rows = [["очень хороший отель".encode("ascii", "replace").decode(), "1"]] * 3
    assert [each.code for each in wrong_characters("f", Head(1, rows))] == ["lost_characters"]
