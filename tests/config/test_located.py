from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import Origin
from xdpx.config.located import Located, Table, TooLarge, merge, origins, plain


def located(value: Any, file: str = "f", *, from_meta: bool = False) -> Located:
    if isinstance(value, dict):
        value = {key: located(item, file) for key, item in value.items()}
    if isinstance(value, list):
        value = [located(item, file) for item in value]
    return Located(value, Origin(file), from_meta)


def table(file: str = "f", **values: Any) -> Table:
    return {key: located(value, file) for key, value in values.items()}


def test_the_higher_table_wins_key_by_key() -> None:
    merged = merge(table("child", a=1), table("parent", a=2, b=3))
    assert {key: (item.value, item.origin.file) for key, item in merged.items()} == {
        "a": (1, "child"),
        "b": (3, "parent"),
    }


def test_dicts_merge_one_level_deep_and_lists_are_replaced() -> None:
    merged = merge(table(d={"a": 1, "deep": {"x": 1}}, l=[1]), table(d={"b": 2, "deep": {"y": 2}}, l=[2, 3]))
    assert plain(Located(merged, Origin("f"))) == {"d": {"a": 1, "b": 2, "deep": {"x": 1}}, "l": [1]}


def test_merging_leaves_its_inputs_alone() -> None:
    higher, lower = table(d={"a": 1}), table(d={"b": 2})
    merge(higher, lower)
    assert (plain(higher["d"]), plain(lower["d"])) == ({"a": 1}, {"b": 2})


def test_a_joined_dict_is_meta_data_only_if_both_parts_are() -> None:
    meta, own = {"d": located({"a": 1}, from_meta=True)}, {"d": located({"b": 1})}
    assert merge(meta, meta)["d"].from_meta
    assert not merge(own, meta)["d"].from_meta


def test_origins_name_inner_keys_and_items() -> None:
    assert list(origins(table(a={"b": [1, {"c": 2}]}))) == ["a", "a.b", "a.b[0]", "a.b[1]", "a.b[1].c"]


def test_a_value_that_shares_its_parts_too_often_is_refused() -> None:
    value = located(1)
    for _ in range(40):
        value = Located([value, value], Origin("f"))
    with pytest.raises(TooLarge, match="100,000 values"):
        plain(value)


def test_a_value_that_nests_too_deeply_is_refused() -> None:
    value = located(1)
    for _ in range(5000):
        value = Located([value], Origin("f"))
    with pytest.raises(TooLarge, match="128 levels"):
        plain(value)
