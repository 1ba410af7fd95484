from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from xdpx.arguments.plain_values import alternatives, plain, plain_kinds


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
