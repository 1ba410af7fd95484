from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from xdpx.trainer.arguments.values import alternatives, plain, plain_kinds, read_dict, truth, typed


def test_a_dict_is_copied_json_is_read_and_its_quoted_numbers_are_numbers() -> None:
    given = {"a": "1"}
    assert read_dict(given) == given
    assert read_dict(given) is not given
    assert read_dict(' {"a": "1", "b": {"c": "0.5"}, "d": "True", "e": "1e5", "f": null}') == {
        "a": 1, "b": {"c": 0.5}, "d": True, "e": "1e5", "f": None,
    }  # fmt: skip


def test_a_file_is_read_as_it_is(tmp_path: Any) -> None:
    (tmp_path / "x.json").write_text('{"a": "1"}')
    assert read_dict(str(tmp_path / "x.json")) == read_dict(tmp_path / "x.json") == {"a": "1"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{a: 1}", "'{a: 1}' is not JSON"),
        ("nowhere.json", "'nowhere.json' cannot be read"),
        (3, "is 3. Give a dict, JSON text"),
        ("{" + "x" * 100, "…' is not JSON"),
    ],
)
def test_what_is_no_dict_is_refused_with_what_to_give(value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_dict(value)


def test_a_file_that_holds_a_list_is_refused(tmp_path: Any) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(ValueError, match="holds list, not a dict"):
        read_dict(str(tmp_path / "x.json"))


def test_only_texts_are_given_a_type() -> None:
    assert typed({"a": [1, "2"], "b": 3, "c": "false", "d": "x1"}) == {"a": [1, "2"], "b": 3, "c": False, "d": "x1"}


@pytest.mark.parametrize(("value", "meant"), [("Yes", True), ("off", False), (1, True), (0, False), (True, True)])
def test_usual_words_for_true_and_false_are_understood(value: Any, meant: bool) -> None:
    assert truth(value) is meant


def test_another_word_is_neither() -> None:
    with pytest.raises(ValueError, match="is 'maybe'. Use true or false"):
        truth("maybe")


@dataclass
class Mixed:
    count: int = 0
    share: float | None = None
    flag: bool = False
    word: str = ""
    either: int | str = 0
    size: Literal[1, 2] = 1


def test_only_fields_of_numbers_and_flags_are_plain() -> None:
    assert plain_kinds(Mixed) == {"count": int, "share": float, "flag": bool}


def test_types_that_cannot_be_resolved_are_left_alone() -> None:
    @dataclass
    class Unclear:
        count: Nowhere = 0  # type: ignore[name-defined]  # noqa: F821

    assert plain_kinds(Unclear) == {}


def test_none_is_no_alternative() -> None:
    assert alternatives(int | None) == [int]
    assert alternatives(list[int]) == [list[int]]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [("3", int, 3), (3.0, int, 3), ("1e-3", float, 1e-3), (2, float, 2), (np.int32(2), float, 2), (None, int, None)],
)
def test_a_value_becomes_a_plain_one(value: Any, kind: type, expected: Any) -> None:
    assert plain(value, kind) == expected
    assert type(plain(value, kind)) is type(expected)


@pytest.mark.parametrize(("value", "kind"), [("x", int), (2.5, int), ("inf", int), ([], float), ("maybe", bool)])
def test_what_means_no_such_value_is_refused_with_an_example(value: Any, kind: type) -> None:
    with pytest.raises(ValueError, match=r"is .*\. Use "):
        plain(value, kind)
