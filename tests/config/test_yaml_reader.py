"""Reading YAML by the core schema of YAML 1.2, from events, so that nothing is constructed from a tag."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import Fault
from xdpx.config.located import origins, plain
from xdpx.config.source_text import SourceText, Unreadable
from xdpx.config.yaml_reader import read_yaml


def read(text: str) -> tuple[Any, list[Fault]]:
    faults: list[Fault] = []
    return plain(read_yaml(SourceText(text, "f.yaml"), faults)), faults


SCALARS = [
    ("1e-4", 0.0001),
    ("1e3", 1000),
    ("1.5", 1.5),
    (".5", 0.5),
    ("2.", 2),
    ("+3", 3),
    ("0x1f", 31),
    ("0o17", 15),
    ("-.inf", float("-inf")),
    ("true", True),
    ("True", True),
    ("FALSE", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("yes", "yes"),
    ("no", "no"),
    ("on", "on"),
    ("off", "off"),
    ("12:30:00", "12:30:00"),
    ("2024-01-01", "2024-01-01"),
    ("010", "010"),
    ("1_000", "1_000"),
    ("'1'", "1"),
    ('"true"', "true"),
    ("!!str 5", "5"),
    ("bert # tiny", "bert"),
    ("${x}/y", "${x}/y"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_scalar_follows_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert read(f"a: {text}") == ({"a": value}, [])


FAULTS = [
    ("a: 1\nb: 2\na: 3", "a", 3, "twice: on line 1 and on line 3"),
    ("x:\n  a: 1\n  a: 2", "x.a", 3, "twice"),
    ("a: 1e400", "a", 1, "too large"),
    ("a:\n  - 1\n  - 1e-400", "a[1]", 3, "too small"),
]


@pytest.mark.parametrize(("text", "key", "line", "problem"), FAULTS)
def test_duplicate_keys_and_numbers_that_do_not_fit_are_faults(text: str, key: str, line: int, problem: str) -> None:
    _, (fault,) = read(text)
    assert (fault.key, fault.origin.line) == (key, line)  # type: ignore[union-attr]
    assert problem in fault.problem


BOMB = "a0: &a0 [x, x]\n" + "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))

REFUSED = [
    ("a: foo, b: 2", "f.yaml:1:10", "one `key: value` per line"),
    ("a:\n\tb: 1", "f.yaml:2:1", "Indent with spaces"),
    ("a: @{batch_size:64}/50", "f.yaml:1:4", "in quotes: '@'"),
    ("a: *.txt", "f.yaml:1:5", "in quotes: '*'"),
    ("a: [1", "f.yaml:", "did not find"),
    ("a: !!python/object/apply:os.system [ls]", "f.yaml:1:4", "a config is data"),
    ("!!python/name:os.system {}", "f.yaml:1:1", "a config is data"),
    ("a: !x y", "f.yaml:1:4", "a config is data"),
    ("a: &x {b: 1}\nc:\n  <<: *x", "f.yaml:3:3", "__parent__"),
    ("[a]: b", "f.yaml:1:1", "a key must be a text"),
    ("a: &b x\n*b : c", "f.yaml:2:1", "a key must be a text"),
    ("a: &x [*x]", "f.yaml:1:8", "refers to nothing above"),
    ("a: 1\n---\nb: 2", "f.yaml:2:1", "second document"),
    ("# nothing", "f.yaml", "is empty"),
    ("[" * 10_000, "f.yaml:1:65", "deeper than 64"),
    ("- " * 10_000, "f.yaml:1:129", "deeper than 64"),
    (BOMB, "f.yaml:6:", "more than 100,000 values"),
]


@pytest.mark.parametrize(("text", "place", "message"), REFUSED)
def test_what_is_no_plain_data_is_refused_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(Unreadable) as error:
        read(text)
    assert place in str(error.value)
    assert message in str(error.value)


def test_an_alias_repeats_its_value() -> None:
    assert read("a: &x [1, 2]\nb: *x\nc: {d: *x}")[0] == {"a": [1, 2], "b": [1, 2], "c": {"d": [1, 2]}}


def test_keys_are_texts_as_written() -> None:
    assert read("1: a\nyes: b\n1.50: c")[0] == {"1": "a", "yes": "b", "1.50": "c"}


def test_every_value_keeps_its_line() -> None:
    located = read_yaml(SourceText("a: 1\nb:\n  c: 2\n  d:\n    - 5\n", "f"), [])
    lines = {key: origin.line for key, origin in origins(located.value).items()}
    assert lines == {"a": 1, "b": 2, "b.c": 3, "b.d": 4, "b.d[0]": 5}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=["L"])), inner),
    max_leaves=15,
)


@given(st.dictionaries(st.text(st.characters(categories=["L"]), min_size=1), JSON))
@settings(max_examples=40, deadline=None)
def test_json_is_yaml(tree: dict[str, Any]) -> None:
    assert read(json.dumps(tree, ensure_ascii=False)) == (tree, [])
