from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import Origin
from xdpx.config.located import Located, Table, plain
from xdpx.config.overrides import apply_overrides, read_overrides

TYPED: list[tuple[str, Any]] = [
    ("x=1e-4", 0.0001),
    ("x=1e3", 1000),
    ("x=true", True),
    ("x=null", None),
    ("x=", ""),
    ("x= ", " "),
    ("x=True", "True"),
    ("x=010", "010"),
    ("x=bert", "bert"),
    ("x=a=b", "a=b"),
    ("x=foo # bar", "foo # bar"),
    ("x=foo, b: 2", "foo, b: 2"),
    ("x=#1", "#1"),
    ("x=}", "}"),
    ("x=${y}/z", "${y}/z"),
    ("x=@{y:1}/2", "@{y:1}/2"),
    ("x='1'", "1"),
    ('x="a b"', "a b"),
    ("x=[a,b]", ["a", "b"]),
    ("x=[a, 'b', 1e-3, s3://c]", ["a", "b", 0.001, "s3://c"]),
    ("x=[]", []),
    ("x={a: x, b: [1,2]}", {"a": "x", "b": [1, 2]}),
    ("x = 5", 5),
    ("x=,", ","),
    ("x='a,'", "a,"),
]


@pytest.mark.parametrize(("text", "value"), TYPED)
def test_a_value_is_typed_as_hjson_but_never_cut(text: str, value: Any) -> None:
    (override,), faults = read_overrides([text])
    assert (override.keys, plain(override.value), faults) == (("x",), value, [])


@pytest.mark.parametrize(
    "text", ["", "x", "=1", "a..b=1", ".a=1", "x=[1", "x={a: 1", "x='a", "x=[1] 2", "x=1e999", "__parent__=b"]
)
def test_what_is_no_override_is_a_fault(text: str) -> None:
    overrides, (fault,) = read_overrides([text])
    assert overrides == []
    assert str(fault.origin) == "command line"


def applied(texts: list[str], **values: Any) -> tuple[dict[str, Any], list[str]]:
    origin = Origin("f", 1)
    table: Table = {key: Located(value, origin) for key, value in values.items()}
    table, faults = apply_overrides(read_overrides(texts)[0], table)
    return {key: plain(value) for key, value in table.items()}, [str(fault) for fault in faults]


@pytest.mark.parametrize("value", ["out,", "out，", "1e-4, "])
def test_a_comma_behind_a_value_is_no_part_of_it(value: str) -> None:
    overrides, (fault,) = read_overrides([f"save_dir={value}"])
    assert overrides == []
    assert (fault.key, fault.problem) == ("save_dir", f"the value '{value.strip()}' ends with a comma.")


def test_a_dotted_key_reaches_into_dicts_and_makes_them() -> None:
    assert applied(["a.b.c=1", "a.b.d=2", "a.e=3"]) == ({"a": {"b": {"c": 1, "d": 2}, "e": 3}}, [])


def test_a_key_that_holds_a_dot_itself_comes_first() -> None:
    assert applied(["a.b=2"], **{"a.b": 1}) == ({"a.b": 2}, [])


def test_the_last_of_two_overrides_counts() -> None:
    assert applied(["a=1", "a=2"]) == ({"a": 2}, [])


def test_nothing_can_be_set_inside_a_scalar() -> None:
    values, (fault,) = applied(["a.b=1"], a="text")
    assert values == {"a": "text"}
    assert "'a' is a text" in fault
