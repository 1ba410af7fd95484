import dataclasses
import enum
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from xdpx.config.hparams import BaseHParams, Configurable, diff, from_json, sub_config_field, to_json


class Colour(enum.Enum):
    RED = 1


class Leaf(Configurable):
    class HParams(BaseHParams):
        size: int = 1
        dtype: Any = np.float32


class Tree(Configurable):
    class HParams(BaseHParams):
        leaf: BaseHParams = sub_config_field(Leaf.HParams)
        leaves: list[Any] = dataclasses.field(default_factory=list)
        extra: Any = None


def double(x: int) -> int:
    return 2 * x


def test_text_is_flat_sorted_and_names_the_classes():
    lines = Tree.HParams(leaves=[Leaf.HParams(size=5)]).to_text().splitlines()
    assert lines == sorted(lines)
    assert "leaf.size : 1" in lines
    assert "leaves[0].size : 5" in lines
    assert "leaf.dtype : float32" in lines
    assert any(line.startswith("leaf.cls : ") and line.endswith("Leaf") for line in lines)


def test_text_has_no_addresses():
    assert "0x" not in Tree.HParams(extra=object()).to_text()
    assert "double" in Tree.HParams(extra=double).to_text()


def test_a_diff_of_equal_templates_is_empty():
    assert diff(Tree.HParams(), Tree.HParams()) == ""


def test_a_diff_shows_what_only_one_side_has():
    left, right = Tree.HParams(), Tree.HParams(leaves=[Leaf.HParams()])
    assert "leaves[0].size : (none) -> 1" in diff(left, right)


@pytest.mark.parametrize(
    "extra",
    [None, 3, "x", (1, 2), [1.5, float("inf")], {"a": (1,)}, {3: "b"}, np.dtype("int8"), np.dtype(ml_dtypes.bfloat16)],
)
def test_json_gives_every_value_back(extra: Any):
    template = Tree.HParams(extra=extra, leaves=[Leaf.HParams(size=2)])
    again = from_json(to_json(template))
    assert again == template
    assert type(again.extra) is type(extra)
    assert again.given() == template.given()


def test_json_gives_enums_classes_and_functions_back_when_they_are_known():
    template = Tree.HParams(extra=[Colour.RED, double])
    assert from_json(to_json(template), known=[Colour, double]) == template


def test_json_imports_nothing_by_a_name_in_it():
    text = to_json(Tree.HParams()).replace('"__template__": "', '"__template__": "os.', 1)
    with pytest.raises(ValueError, match="not a known class"):
        from_json(text)
    with pytest.raises(ValueError, match="not a known class"):
        from_json('{"__name__": "os.system"}')


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="cannot be written"):
        to_json(Tree.HParams(extra=object()))
    with pytest.raises(TypeError, match="cannot be written"):
        to_json(Tree.HParams(extra=lambda x: x))


def test_json_of_an_unknown_kind_of_object_is_refused():
    with pytest.raises(ValueError, match="__template__"):
        from_json('{"a": 1}')


def test_to_dict_is_plain():
    assert Tree.HParams().to_dict()["leaf"] == {"size": 1, "dtype": np.float32}
