from __future__ import annotations

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.registry import REGISTRIES, ROOMS, Registry, made, registry_of


@pytest.fixture
def tools() -> Registry[object]:
    return Registry("tool", {"path": "pathlib:Path", "gone": "no_such_module:Thing"})


def test_a_shipped_name_is_imported_when_it_is_asked_for(tools: Registry[object]) -> None:
    assert tools["path"].__name__ == "Path"  # type: ignore[attr-defined]
    assert "gone" in tools


def test_a_users_class_is_registered_and_told_apart(tools: Registry[object]) -> None:
    tools.register("mine")(dict)
    assert tools["mine"] is dict
    assert tools.own() == {"mine": dict}
    assert list(tools) == ["gone", "mine", "path"]


def test_a_taken_name_is_refused(tools: Registry[object]) -> None:
    with pytest.raises(ValueError, match="tool 'path' already exists"):
        tools.register("path")(dict)


def test_an_unknown_name_offers_the_nearest(tools: Registry[object]) -> None:
    with pytest.raises(ConfigError, match="no 'paht' is registered. Did you mean 'path'"):
        tools["paht"]


def test_what_is_no_class_or_of_another_base_is_refused_by_its_name() -> None:
    tools: Registry[object] = Registry("tool", {}, base="pathlib:PurePath", in_configs=False)
    for name, thing in (("made", len), ("seven", 7), ("strange", dict)):
        tools.register(name)(thing)
    with pytest.raises(
        ConfigError, match=r"tool: 'made' is len \(builtin.*\), not a class. Register a class that derives"
    ):
        tools["made"]
    with pytest.raises(ConfigError, match=r"tool: 'seven' is 7 \(int\), not a class"):
        tools["seven"]
    with pytest.raises(ConfigError, match=r"'strange' is of the class dict, .* Derive it from pathlib\.PurePath"):
        tools["strange"]


def test_a_class_that_cannot_be_made_so_is_named_and_errors_from_within_stay() -> None:
    class Narrow:
        def __init__(self, given: int) -> None:
            len(given)  # type: ignore[arg-type]

    with pytest.raises(
        ConfigError, match=r"tool: no Narrow can be made: .* required positional argument: 'given'. Take what its base"
    ):
        made("tool", Narrow)
    with pytest.raises(TypeError, match="has no len"):
        made("tool", Narrow, 1)


@pytest.mark.parametrize("kind", sorted(ROOMS))
def test_every_kind_has_a_room_with_its_table(kind: str) -> None:
    assert registry_of(kind).kind == kind
    assert kind in REGISTRIES
