from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from xdpx.config.value_types import Mismatch, read_type, text_of

GOOD: list[tuple[str, Any, Any]] = [
    ("int", 3, 3),
    ("int", 1.0, 1),
    ("float", 3, 3.0),
    ("float", 1e-5, 1e-5),
    ("bool", True, True),
    ("str", "3", "3"),
    ("int | None", None, None),
    ("int | float", 3, 3),
    ("int | float", 1.0, 1.0),
    ("int | None", 32.0, 32),
    ("list[int]", [1.0, 2], [1, 2]),
    ("Literal[1, 2]", 2.0, 2),
    ("float | None", 3, 3.0),
    ("Any", {"a": [1]}, {"a": [1]}),
    ("Literal['a', 2]", 2, 2),
    ("list[int]", [1, 2], [1, 2]),
    ("tuple[float, float]", [0.9, 1], (0.9, 1.0)),
    ("dict[int, list[int]]", {"3": [1]}, {3: [1]}),
    ("str | list[str]", ["a"], ["a"]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), GOOD)
def test_a_value_of_its_type_is_accepted(kind: str, value: Any, expected: Any) -> None:
    accepted = read_type(kind).accept(value)
    assert accepted == expected
    assert type(accepted) is type(expected)


BAD: list[tuple[str, Any, str]] = [
    ("int", "32", "write 32 without quotes"),
    ("int", "1,000", "write 1000"),
    ("int", "３２", "Use an integer: write 32"),
    ("int", True, "not a truth value"),
    ("int", 1e30, "Use an integer"),
    ("int", 1.5, "Use an integer."),
    ("int", None, "remove the key"),
    ("float", "1e-4", "write 1e-4 without quotes"),
    ("float", "010", "write 10"),
    ("float", ".5", "write 0.5"),
    ("float", "1_000", "write 1000"),
    ("float", "1e\u22123", "write 1e-3"),
    ("float", "0.1 # lr", "The comment after '0.1' was read as part of the text"),
    ("float", "0.1 // lr", "The comment after '0.1'"),
    ("int", "3,", "remove the ','"),
    ("int", "3, b: 4", "each key on a line of its own"),
    ("float", "fast", "Use a number."),
    ("float", float("nan"), "finite"),
    ("float", 10**400, "too large"),
    ("float", True, "not a truth value"),
    ("bool", 1, "write true"),
    ("bool", "yes", "write true"),
    ("bool", "True", "write true"),
    ("str", 3, "put it in quotes, '3'"),
    ("str", True, "put it in quotes, 'true'"),
    ("int", "\u0663", "Use an integer: write 3."),
    ("str", None, "Use text"),
    ("int | None", "None", "write null"),
    ("Literal['torch', 'jsonl']", "torhc", "Did you mean 'torch'?"),
    ("Literal[1, 2]", True, "Use one of 1, 2"),
    ("list[int]", [1, "a"], "item 2 is 'a'"),
    ("list[int]", 3, "Use a list"),
    ("list[float]", "1,2", "write [1, 2]."),
    ("list[int]", "3 4  5", "write [3, 4, 5]."),
    ("list[str]", "mixed one", "write [mixed one]."),
    ("list[str]", "mcc , kappa", "write [mcc, kappa]."),
    ("dict[str, str]", "in.tsv", "write {in.tsv: ...}."),
    ("dict[str, str]", "in.tsv:out.tsv", "write {in.tsv: out.tsv}."),
    ("str | list[str]", [1], "item 1 is 1"),
    ("tuple[float, float]", [0.9], "a list of 2"),
    ("dict[str, int]", {"a": "b"}, "'a' is 'b'"),
    ("int", [1, 2], "__parent__: [["),
]


@pytest.mark.parametrize(("kind", "value", "words"), BAD)
def test_a_value_of_another_type_is_refused_with_what_to_write(kind: str, value: Any, words: str) -> None:
    with pytest.raises(Mismatch) as refused:
        read_type(kind).accept(value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        float,
        str,
        bool,
        None,
        Any,
        int | None,
        list[int],
        dict[str, list[int]],
        tuple[float, float],
        Literal["a", 1],
    ],
)
def test_an_annotation_is_written_and_read_back(annotation: Any) -> None:
    text = text_of(annotation)
    assert read_type(text).json_schema() is not None
    assert text_of(annotation) == text


@pytest.mark.parametrize("annotation", [bytes, set[int], tuple[int, ...], object])
def test_an_annotation_that_no_config_can_hold_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError, match="cannot be of type"):
        text_of(annotation)


@pytest.mark.parametrize("text", ["__import__('os')", "open", "list[open]", "int if 1 else str", "int, str"])
def test_text_that_is_no_type_is_refused_without_being_run(text: str) -> None:
    with pytest.raises(ValueError, match="not a type"):
        read_type(text)


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(value=VALUES, kind=some.sampled_from([kind for kind, *_ in (*GOOD, *BAD)]))
def test_any_value_is_accepted_or_refused_and_nothing_else(value: Any, kind: str) -> None:
    accepted, told = None, ""
    try:
        accepted = read_type(kind).accept(value)
    except Mismatch as refused:
        told = refused.problem + refused.remedy
    assert told.endswith(".") or not isinstance(accepted, bool) or isinstance(value, bool)
