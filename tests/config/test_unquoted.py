"""Unquoted texts: they end where their writer meant them to, nothing else is read differently, doubt is a fault."""

from __future__ import annotations

import re
from typing import Any

import hjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import Fault
from xdpx.config.hjson_reader import read_hjson
from xdpx.config.located import origins, plain
from xdpx.config.source_text import SourceText, Unreadable


def read(text: str) -> tuple[Any, list[Fault]]:
    faults: list[Fault] = []
    return plain(read_hjson(SourceText(text, "f.hjson"), faults)), faults


MEANT = [
    ("a: bert # tiny", "bert"),
    ("a: bert // tiny\n", "bert"),
    ("a: bert /* tiny */", "bert"),
    ("{\n  a: two words\t# tiny\n}", "two words"),
    ("a: 64  // tokens", 64),
    ("a: http://x/y // where", "http://x/y"),
    ("a: http://x/y", "http://x/y"),
    ("a: s3://bucket/#1", "s3://bucket/#1"),
    ("a: x#fff", "x#fff"),
    ("a: 'b # c' # d", "b # c"),
    ("a: out/@{batch_size:64}//50", "out/@{batch_size:64}//50"),
    ("\na: '''\none # two\n''' # three", "one # two"),
    ("a: [train, dev]", ["train", "dev"]),
    ("a: [train, dev] // two", ["train", "dev"]),
    ("a: [ train , two words,]", ["train", "two words"]),
    ("a: [x]", ["x"]),
    ("{a: yes}", "yes"),
    ("{a: ${x}}", "${x}"),
    ("{a: ${x}/y, b: 1}", "${x}/y"),
    ("a: {train.tsv: train, dev.tsv: dev}", {"train.tsv": "train", "dev.tsv": "dev"}),
    ("a: {b: {c: x}, d: [1, y, 'z, z']}", {"b": {"c": "x"}, "d": [1, "y", "z, z"]}),
    ("a: [\n  {b: x, c: y}\n  z\n]", [{"b": "x", "c": "y"}, "z"]),
    ("a: [x, 'y # [', z]", ["x", "y # [", "z"]),
    ("a: [http://x, s3://b/#1, it's]", ["http://x", "s3://b/#1", "it's"]),
    ("a: [x[1], @{b:64}/50, 12:30]", ["x[1]", "@{b:64}/50", "12:30"]),
    ("a: [x /* [ */, y]", ["x", "y"]),
    ("a: [1, 010, True, null]", [1, "010", "True", None]),
    ("a: [\n  x # one\n  y\n]", ["x", "y"]),
    ("a: [{b: x}, // first\n {b: y}]", [{"b": "x"}, {"b": "y"}]),
]


@pytest.mark.parametrize(("text", "value"), MEANT)
def test_a_text_ends_where_its_writer_meant_it_to(text: str, value: object) -> None:
    found, faults = read(text)
    assert (found["a"], faults) == (value, [])


DOUBTFUL = [
    ("a: [b: 1, c]", "a[0]", 5, "holds a ':' and a blank"),
    ("{a: x b: y}", "a", 5, "holds a ':' and a blank"),
    ("a: [b : 1, c]", "a[0]", 5, "holds a ':' and a blank"),
    ("a: [< :]", "a[0]", 5, "holds a ':' and a blank"),
    ("a: [re{a,b}, c]", "a[0]", 5, "holds a { that has no partner"),
    ("a: [f(x, y)]", "a[0]", 5, "holds a ( that has no partner"),
    ('a: [5" disk, x]', "a[0]", 5, 'holds a " that has no partner'),
    ("a: [训练，验证]", "a[0]", 5, "full-width comma"),
    ("a: [“x”, 1]", "a[0]", 5, "typographic quote"),
    ("a: [[a-c]*.txt, b]", "a", 10, "no comma before '*.txt, b]'"),
    ("a: ['x' y]", "a", 9, "no comma before 'y]'"),
    ("a: [x,, y]", "a", 7, "found ',' where a list item"),
    ("{a: x, b}", "syntax", 8, "no ':' after 'b'"),
    ("a: x /* y */ z", "syntax", 14, "no ':' after 'z'"),
    ("a: x /* y", "syntax", 6, "the comment that opens here is never closed"),
    ("a: [x // y, z]", "a", 4, "the '[' that opens here is never closed"),
]


@pytest.mark.parametrize(("text", "key", "column", "problem"), DOUBTFUL)
def test_what_may_have_been_meant_otherwise_is_a_fault_with_its_place(
    text: str, key: str, column: int, problem: str
) -> None:
    try:
        fault = read(text)[1][0]
    except Unreadable as error:
        fault = error.fault
    assert (fault.key, getattr(fault.origin, "column", None)) == (key, column)
    assert problem in fault.problem


def test_every_value_of_brackets_in_one_line_keeps_its_line() -> None:
    located = read_hjson(SourceText("# one\na: [x, {b: y}] # two\nc: z // three\nd: 1", "f"), [])
    lines = {key: origin.line for key, origin in origins(located.value).items()}
    assert lines == {"a": 2, "a[0]": 2, "a[1]": 2, "a[1].b": 2, "c": 3, "d": 4}


NAMES = st.text("abé_-./*@$%&=<>!?|\\中 #:", min_size=1, max_size=8).map(str.strip).filter(bool)
COMMENTS = st.sampled_from(["", " # note", "  // note [", "\t/* note, */"])
IN_LINE = re.compile(r"^[#:'\"]|\s#|\s//|^/[/*]|\s/\*|:(\s|$)")


@given(st.lists(NAMES, min_size=1, max_size=4), COMMENTS)
@settings(max_examples=100, deadline=None)
def test_names_in_brackets_are_read_as_they_stand_or_there_is_a_fault(names: list[str], comment: str) -> None:
    try:
        value, faults = read(f"a: [{', '.join(names)}]{comment}\nb: {{{'c: ' + names[0]}}}{comment}")
    except Unreadable:
        faults, value = [Fault("", "")], {}
    assert bool(faults) == any(map(IN_LINE.search, names))
    if not faults:
        assert [str(name) for name in value["a"]] == names
        assert value["b"] == {"c": value["a"][0]}


@given(NAMES, COMMENTS)
@settings(max_examples=100, deadline=None)
def test_a_comment_after_a_value_changes_nothing(name: str, comment: str) -> None:
    try:
        assert read(f"a: {name}{comment}\nb: 1") == read(f"a: {name}\nb: 1")
    except Unreadable:
        with pytest.raises(Unreadable):
            read(f"a: {name}\nb: 1")


MARKS = ["{", "}", "[", "]", ":", ",", "'", '"', "'''", "#", "//", "/*", "*/", "\n", "\t", " ", "=", "-", "\\n", "${x}"]
WORDS = ["a", "bc", "é", "true", "null", "1", "-0.5", "1e3", "010", ".5", "\\u0041"]
PIECES = st.sampled_from(MARKS + WORDS)
NEW_FORMS = re.compile(r"[^\S\n](#|//|/\*)|\[[^\n]*\]|\{[^\n]*\}")
"""A comment after a blank, and brackets that close on their line: elsewhere the hjson package has the word."""


@given(st.lists(PIECES, max_size=16).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_without_the_new_forms_means_the_same_to_the_hjson_package(text: str) -> None:
    try:
        value, faults = read(text)
    except Unreadable:
        return
    if faults or NEW_FORMS.search(text):
        return
    # The package looks for the line end before a '''text''', and fails with IndexError where there is none.
    assert repr(value) == repr(hjson.loads(f"\n{text}", object_pairs_hook=dict))


def texts(value: Any) -> list[str]:
    """Return the texts of a tree that may stand for several, in order."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@given(st.lists(PIECES, max_size=16).map("".join))
@settings(max_examples=300, deadline=None)
def test_where_the_package_reads_otherwise_a_text_of_it_holds_a_comment_a_comma_or_a_bracket(text: str) -> None:
    try:
        value, faults = read(text)
        theirs = hjson.loads(f"\n{text}", object_pairs_hook=dict)
    except (Unreadable, hjson.HjsonDecodeError, IndexError):  # the last: of the package, e.g. for `true/*:`
        return
    if not faults and repr(value) != repr(theirs):
        assert any(re.search(r"\s(#|//|/\*)|[,\]}]", each) for each in texts(theirs))
