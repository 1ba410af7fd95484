from __future__ import annotations

import pytest

from xdpx.config.faults import Origin
from xdpx.config.source_text import SourceText, Unreadable, decode, excerpt, read_number, short_path

REFUSED = [
    (b"a: caf\xe9\nb: 1", "byte 6 (0xe9) is not UTF-8", "f:1"),
    (b"a: 1\n\xff", "byte 5 (0xff) is not UTF-8", "f:2"),
    ("a: 1".encode("utf-16"), "is not UTF-8", "f:1"),
    (b"a: 1\nb: \x00", "control character U+0000", "f:2:4"),
    (b"", "is empty", "f"),
    (b"\xef\xbb\xbf \n\t\n", "is empty", "f"),
    (b"x" * 1_000_001, "larger than 1 MB", "f"),
]


@pytest.mark.parametrize(("data", "problem", "place"), REFUSED)
def test_bytes_that_are_no_config_are_refused_with_their_place(data: bytes, problem: str, place: str) -> None:
    with pytest.raises(Unreadable) as error:
        decode(data, "f")
    assert problem in error.value.fault.problem
    assert str(error.value.fault.origin) == place


def test_a_byte_order_mark_is_stripped() -> None:
    assert decode(b"\xef\xbb\xbfa: 1", "f").text == "a: 1"


def test_lines_end_with_any_kind_of_newline() -> None:
    source = SourceText("a\r\nb\rc\nd", "f")
    assert [source.line(source.text.index(letter)) for letter in "abcd"] == [1, 2, 3, 4]


def test_a_place_has_line_and_column_from_1() -> None:
    assert SourceText("ab\ncd", "f").place(4) == Origin("f", 2, 2)


def test_an_excerpt_is_one_short_line() -> None:
    assert excerpt("a\nb") == "'a\\nb'"
    assert len(excerpt("x" * 1000)) == 42


def test_a_deep_path_is_cut_in_the_middle() -> None:
    assert short_path("a.b[0]") == "a.b[0]"
    assert len(short_path("a." * 500)) == 51


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("1e3", 1000), ("2.50", 2.5), ("1e10", 1e10), ("1.0", 1.0)])
def test_a_whole_number_is_an_int_unless_it_is_written_with_a_point(text: str, number: float) -> None:
    assert repr(read_number(text)) == repr(number)


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1e-999", "9" * 301])
def test_a_number_that_would_change_silently_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_number(text)
