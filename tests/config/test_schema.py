from __future__ import annotations

import json
import re

import pytest

from xdpx.config.schema import schema, schema_text

pytestmark = pytest.mark.usefixtures("rooms")


def test_every_key_a_run_may_have_is_described_for_an_editor() -> None:
    properties = schema("x-draw")["$defs"]["run"]["properties"]
    assert properties["batch_size"]["description"] == "pictures at once (x-draw)"
    assert properties["batch_size"]["anyOf"][0] == {"type": "integer", "exclusiveMinimum": 0}
    assert properties["shape"]["anyOf"][0] == {"enum": ["circle", "square"]}
    assert properties["dropout"]["default"] == 0.2
    assert {"__parent__", "__def__", "thickness", "radius"} <= properties.keys()


def test_a_reference_may_stand_for_any_value_and_a_relative_number_where_allowed() -> None:
    properties = schema("x-draw")["$defs"]["run"]["properties"]
    patterns = [kind["pattern"] for kind in properties["interval"]["anyOf"] if "pattern" in kind]
    assert any(re.search(pattern, "@{batch_size:64}/50") for pattern in patterns)
    assert any(re.search(pattern, "${name}") for pattern in patterns)
    assert len([kind for kind in properties["batch_size"]["anyOf"] if "pattern" in kind]) == 1


def test_keys_with_the_prefix_of_a_second_module_are_allowed() -> None:
    (pattern,) = schema("x-draw")["$defs"]["run"]["patternProperties"]
    assert re.search(pattern, "teacher_side")
    assert not re.search(pattern, "side")


def test_the_text_is_json() -> None:
    assert json.loads(schema_text("x-draw"))["title"] == "xdpx x-draw"
