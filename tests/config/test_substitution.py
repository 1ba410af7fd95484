"""`${name}`: where it is looked up, what type it gives, and how every slip is reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import Origin
from xdpx.config.located import Located, Table, plain
from xdpx.config.substitution import Substitution


def located(value: Any) -> Located:
    if isinstance(value, dict):
        value = {key: located(item) for key, item in value.items()}
    if isinstance(value, list):
        value = [located(item) for item in value]
    return Located(value, Origin("f", 7))


def substituted(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    table: Table = located(values).value
    substitution = Substitution(table)
    result = substitution.table()
    return plain(Located(result, Origin("f"))), [str(fault) for fault in substitution.faults]


CASES: list[tuple[dict[str, Any], str, Any]] = [
    ({"a": "${b}", "b": 1e-4}, "a", 1e-4),
    ({"a": "${b}", "b": True}, "a", True),
    ({"a": "${b}", "b": None}, "a", None),
    ({"a": "${b}", "b": [1, "${c}"], "c": 2}, "a", [1, 2]),
    ({"a": "${b}", "b": {"x": 1}}, "a", {"x": 1}),
    ({"a": "x${b}y", "b": 1}, "a", "x1y"),
    ({"a": "x${b}y", "b": 2.0}, "a", "x2y"),
    ({"a": "x${b}", "b": True}, "a", "xtrue"),
    ({"a": "x${b}", "b": None}, "a", "xnull"),
    ({"a": "${b}/x", "b": "out/"}, "a", "out/x"),
    ({"a": "${b}/x", "b": "out//"}, "a", "out/x"),
    ({"a": "${b}_x", "b": "out/"}, "a", "out_x"),
    ({"a": "${b}/x", "b": "/"}, "a", "/x"),
    ({"a": "x${b}y", "b": "/"}, "a", "x/y"),
    ({"a": "${b}bucket", "b": "s3://"}, "a", "s3://bucket"),
    ({"a": "${b}", "b": "out/"}, "a", "out/"),
    ({"a": "${b}", "b": "${c}/x", "c": "root"}, "a", "root/x"),
    ({"a": "${b}", "b": "${c}", "c": 3}, "a", 3),
    ({"a": ["${b}", {"${b}": "${b}"}], "b": "v"}, "a", ["v", {"v": "v"}]),
    ({"a": {"${b}/1": 1}, "b": "dir/"}, "a", {"dir/1": 1}),
    ({"a": {"${b}": 1}, "b": 5}, "a", {"5": 1}),
    ({"a": "${x_${b}}", "b": "y", "x_y": 9}, "a", 9),
    ({"a": "${b.c}", "b": {"c": 4}}, "a", 4),
    ({"a": "${b.c}", "b.c": 5, "b": {"c": 4}}, "a", 5),
    ({"a": {"x": "${a.y}", "y": 1}}, "a", {"x": 1, "y": 1}),
    ({"a": "$${b}"}, "a", "${b}"),
    ({"a": "x$${b}${c}", "c": "$${d}"}, "a", "x${b}${d}"),
    ({"a": "$b {c} $"}, "a", "$b {c} $"),
    ({"a": "${b}}", "b": 1}, "a", "1}"),
    ({"a": "@{n:${b}}/5", "b": 64}, "a", "@{n:64}/5"),
    ({"a": "${b}", "b": "key", "__def__": {"b": "macro"}}, "a", "macro"),
    ({"a": "${m}", "b": 2, "__def__": {"m": "${b}"}}, "a", 2),
    ({"a": 1, "__def__": {"a": 2}}, "a", 1),
    ({"a": "${__workers__}"}, "a", 1),
]


@pytest.mark.parametrize(("values", "key", "expected"), CASES)
def test_a_reference_gives_the_value_of_its_name(values: dict[str, Any], key: str, expected: Any) -> None:
    result, faults = substituted(values)
    assert faults == []
    assert (result[key], type(result[key])) == (expected, type(expected))


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"a": "${lerning_rate}", "learning_rate": 1}, ["a (f:7)", "Did you mean '${learning_rate}'?"]),
    ({"max_len": "${max_leng}"}, ["max_len (f:7)", "Define it"]),
    ({"a": ["x", "${zzzz}"]}, ["a[1] (f:7)", "neither in `__def__`, nor a key, nor built in", "$${"]),
    ({"a": {"b": "${zzzz}"}}, ["a.b (f:7)"]),
    ({"a": "${a}"}, ["a (f:7)", "a -> a"]),
    ({"c": "${a}", "a": "${b}", "b": "x${a}"}, ["a (f:7)", "a -> b -> a"]),
    ({"a": {"x": "${a}"}}, ["a -> a"]),
    ({"__def__": {"a": "${b}", "b": "${a}"}}, ["a -> b -> a"]),
    ({"a": "${b"}, ["'${' without '}'"]),
    ({"a": "x${b}", "b": [1]}, ["${b} is a list", "whole value"]),
    ({"a": "x${b}", "b": {}}, ["${b} is a dict"]),
    ({"a": {"${b}": 1}, "b": [1]}, ["the key becomes a list"]),
    ({"a": {"${b}": 1, "v": 2}, "b": "v"}, ["results from 'v' and from another key"]),
    ({"a": "${" * 50 + "}" * 50}, ["more than 16 deep"]),
    ({"a": "${test_root}"}, [".test_meta"]),
]


@pytest.mark.parametrize(("values", "messages"), WRONG)
def test_a_wrong_reference_is_one_fault_and_the_text_stays(
    values: dict[str, Any], messages: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result, (fault,) = substituted(values)
    assert all(message in fault for message in messages), fault
    assert result.keys() == values.keys() - {"__def__"}


def test_every_wrong_reference_of_a_run_is_reported() -> None:
    _, faults = substituted({"a": "${x1}", "b": "${x2}", "c": "${a}", "d": ["${x3}"]})
    assert len(faults) == 3


def test_texts_that_double_at_each_step_are_stopped() -> None:
    values = {f"a{index}": f"${{a{index + 1}}}${{a{index + 1}}}" for index in range(60)} | {"a60": "xxxx"}
    _, faults = substituted(values)
    assert "10,000,000 characters" in faults[0]


def test_a_very_long_chain_is_a_fault_and_not_a_crash() -> None:
    values = {f"a{index}": f"${{a{index + 1}}}" for index in range(3000)} | {"a3000": 1}
    _, faults = substituted(values)
    assert all("too many references" in fault for fault in faults)


NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.lists(st.sampled_from(["${a}", "${b}", "${c}", "${d}", "${", "}", "$", "$$", "/", "x", "."]), max_size=5)
VALUES = st.recursive(TEXTS.map("".join) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@given(st.dictionaries(NAMES, VALUES))
@settings(max_examples=200, deadline=None)
def test_any_web_of_references_ends_in_values_or_faults(values: dict[str, Any]) -> None:
    result, faults = substituted(values)
    assert result.keys() == values.keys()
    assert faults or "${a}" not in str(result) or "$$" in str(values)
