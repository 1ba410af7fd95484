"""Reading hjson: the same values as the hjson package, and a fault for everything it swallows in silence.

Where a text ends at a comment or in brackets of one line is tested in `test_unquoted.py`.
"""

from __future__ import annotations

import json
from typing import Any

import hjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import LONG
from xdpx.config.faults import Fault
from xdpx.config.hjson_reader import read_hjson, read_value
from xdpx.config.located import origins, plain
from xdpx.config.source_text import SourceText, Unreadable


def read(text: str) -> tuple[Any, list[Fault]]:
    faults: list[Fault] = []
    return plain(read_hjson(SourceText(text, "f.hjson"), faults)), faults


VALUES = [
    ("a: 1e-4", 0.0001),
    ("a: 1e3", 1000),
    ("a: 2.0", 2),
    ("a: -0.5 # why", -0.5),
    ("a: 12 // twelve", 12),
    ("a: true /* yes */", True),
    ("a: null", None),
    ("a: True", "True"),
    ("a: 010", "010"),
    ("a: .5", ".5"),
    ("a: 1_000", "1_000"),
    ("a: 12:30:00", "12:30:00"),
    ("a: no", "no"),
    ("a: 1 2", "1 2"),
    ("a: two words ", "two words"),
    ("a: oss://bucket/x", "oss://bucket/x"),
    ("a: data/*.txt", "data/*.txt"),
    ("a: hello, world", "hello, world"),
    ("a: ${x}/y", "${x}/y"),
    ("a: @{batch_size:64}/50", "@{batch_size:64}/50"),
    ("a: x#y", "x#y"),
    ("a: '//'", "//"),
    ('a: "\\u4e2d\\n\\t\\"\\\\"', '中\n\t"\\'),
    ("a: '\\ud83d\\ude00'", "😀"),
    ("\na: '''\n   one\n     two\n   '''", "one\n  two"),
    ("\na: ''''''", ""),
    ("a: {}", {}),
    ("a: [1, 'b', true, {c: 2}]", [1, "b", True, {"c": 2}]),
    ("a:\n  later", "later"),
    ("a: 好，的", "好，的"),
    ("a: x: y", "x: y"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_is_what_the_hjson_package_gives(text: str, value: object) -> None:
    assert read(text) == ({"a": value}, [])
    assert hjson.loads(text) == {"a": value}


@pytest.mark.parametrize(
    ("text", "value"), [("32", 32), ("true", True), ("'x'", "x"), ("[1]", [1]), ("two words", "two words")]
)
def test_blanks_that_are_copied_from_a_page_are_blanks_in_front_of_any_value(text: str, value: object) -> None:
    for blank in ("\u00a0", "\u3000", " \u00a0 "):
        assert read(f"a:{blank}{text}\nb: 2") == ({"a": value, "b": 2}, [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: {s3://b/x.tsv: o.tsv}}", {"a": {"s3://b/x.tsv": "o.tsv"}}),
        (
            "a: {\n http://h:80/x : s3://b/y // z\n oss://b/c: 1\n}",
            {"a": {"http://h:80/x": "s3://b/y", "oss://b/c": 1}},
        ),
        ("a:// comment: b\n 1", {"a": 1}),
        ("a://comment\n 1", {"a": 1}),
    ],
)
def test_the_address_of_a_file_may_be_a_key_without_quotes(text: str, value: object) -> None:
    assert read(text) == (value, [])


TRAPS = [
    ("a: foo, b: 2", "a", 1, 7, "the comma", {"a": "foo", "b": 2}),
    ("a: foo, 'b c': 2", "a", 1, 7, "the comma", {"a": "foo", "b c": 2}),
    ("{\n a: foo,\n b: 2\n}", "a", 2, 8, "the comma", {"a": "foo", "b": 2}),
    ("{\n a: 好，\n b: 2\n}", "a", 2, 6, "the comma", {"a": "好", "b": 2}),
    ("a: foo， b: 2", "a", 1, 7, "the comma", {"a": "foo", "b": 2}),
    ("a: [\n x]", "a[0]", 2, 3, "the ']'", {"a": ["x"]}),
    ("{a: x, b: {\n}}", "a", 1, 6, "the comma", {"a": "x", "b": {}}),
    ("a: [\n x,\n y\n]", "a[0]", 2, 3, "the comma", {"a": ["x", "y"]}),
    ("a:\nb: 2", "a", 1, 2, "has no value", {"a": None, "b": 2}),
    ("{a: }", "a", 1, 3, "has no value", {"a": None}),
    ("a: # nothing\nb: 2", "a", 1, 2, "has no value", {"a": None, "b": 2}),
    ("a: 1\na: 2", "a", 2, 1, "twice: on line 1 and on line 2", {"a": 2}),
    ("x: {a: 1, b: 2\n  'a': 3}", "x.a", 2, 3, "twice: on line 1 and on line 2", {"x": {"a": 3, "b": 2}}),
    ("a: 1e400", "a", 1, 4, "too large", {"a": 0}),
    ("a: 1e-400", "a", 1, 4, "too small", {"a": 0}),
    ("a: " + "7" * 5000, "a", 1, 4, "number of 5000 characters", {"a": 0}),
    ("a: “quoted”；", "a", 1, 4, "typographic quote", {"a": "quoted"}),
    ("“a”: 1", "“a”", 1, 1, "typographic quote", {"a": 1}),
    ("a\u200b: 1", "a\u200b", 1, 2, "invisible character U+200B", {"a\u200b": 1}),
]


@pytest.mark.parametrize(("text", "key", "line", "column", "problem", "meant"), TRAPS)
def test_a_trap_is_a_fault_with_its_place_and_reading_goes_on_with_what_was_meant(
    text: str, key: str, line: int, column: int, problem: str, meant: object
) -> None:
    value, (fault,) = read(text)
    assert value == meant
    assert (fault.key, fault.origin.line, fault.origin.column) == (key, line, column)  # type: ignore[union-attr]
    assert problem in fault.problem


def test_all_traps_of_a_file_are_found_and_one_line_is_one_fault() -> None:
    _, faults = read("{\n a: x, b: y, c: z\n d: [\n p, q, r\n]\n e: 1\n e: 2\n}")
    assert [(fault.key, fault.origin.line) for fault in faults if fault.origin] == [("a", 2), ("d[0]", 4), ("e", 7)]


BROKEN = [
    ("{a: 1", "f.hjson:1:1", "'{' that opens here is never closed"),
    ("a: [1,", "f.hjson:1:4", "'[' that opens here is never closed"),
    ("a: [1,,2]", "f.hjson:1:7", "found ',' where a list item"),
    ('a: "x', "f.hjson:1:4", "not closed on its line"),
    ("a: '''x", "f.hjson:1:4", "''' that opens here is never closed"),
    ("a: 1 /* x", "f.hjson:1:6", "comment that opens here is never closed"),
    ("{a: 1} b", "f.hjson:1:8", "comes after the end"),
    ("a: 1\nb c: 2", "f.hjson:2:1", "no ':' after 'b'"),
    ("a: 0,001", "f.hjson:1:6", "Write 0.001 for a number, or [0, 001] for a list."),
    ("a: 10,000", "f.hjson:1:7", "Write 10000 for a number, or [10, 000] for a list."),
    ("a = 1", "f.hjson:1:1", "not `key = value`"),
    ("a：1", "f.hjson:1:1", "full-width colon"),
    ("｛\na: 1\n｝", "f.hjson:1:1", "'｛' is a full-width bracket"),
    ("{\na: 1\n｝", "f.hjson:3:1", "'｝' is a full-width bracket"),
    (": 1", "f.hjson:1:1", "no key before the ':'"),
    ("}", "f.hjson:1:1", "found '}' where a key"),
    ('a: "C:\\path"', "f.hjson:1:7", "'\\p' is not an escape"),
    ('a: "x\ty"', "f.hjson:1:6", "raw tab"),
    ('a: "\\ud800"', "f.hjson:1:4", "half of a surrogate pair"),
    ("# only", "f.hjson:1:7", "holds only comments"),
    ("[" * 10_000, "f.hjson:1:65", "deeper than 64"),
    ("{a:" * 10_000, "f.hjson:1:193", "deeper than 64"),
]


@pytest.mark.parametrize(("text", "place", "message"), BROKEN)
def test_a_broken_structure_is_one_fault_with_line_and_column(text: str, place: str, message: str) -> None:
    with pytest.raises(Unreadable) as error:
        read(text)
    assert f"({place})" in str(error.value)
    assert message in str(error.value)


def test_nesting_of_64_levels_is_read() -> None:
    assert read("[" * 64 + "]" * 64)[1] == []


def test_every_value_keeps_its_line() -> None:
    located = read_hjson(SourceText("{\r\n  a: 1\r\n  b: {\n    c: 2\n  }\n  d: [\n    5\n    6\n  ]\n}", "f"), [])
    lines = {key: origin.line for key, origin in origins(located.value).items()}
    assert lines == {"a": 2, "b": 3, "b.c": 4, "d": 6, "d[0]": 7, "d[1]": 8}


GIVEN = [
    ("[a, b]", ["a", "b"]),
    ("{a: x, b: 1}", {"a": "x", "b": 1}),
    ("1e-4", 0.0001),
    ("a # b", "a # b"),
    ("'1'", "1"),
]


@pytest.mark.parametrize(("text", "value"), GIVEN)
def test_a_value_given_outside_a_file_means_what_it_seems_to_mean(text: str, value: object) -> None:
    assert plain(read_value(text, "command line")) == value


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(st.dictionaries(st.text(), TREES), st.sampled_from([None, 2]))
@settings(max_examples=50 if LONG else 20, deadline=None)
def test_plain_json_is_read_as_the_json_package_reads_it(tree: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=True)
    value, faults = read(text)
    assert (value, faults) == (tree, [])
