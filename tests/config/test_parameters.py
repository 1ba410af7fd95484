from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from xdpx.config.declarations import REQUIRED, Entry, declarations_of
from xdpx.config.parameters import Parameters as Base
from xdpx.config.parameters import entry_of, param


class Animal:
    """Something alive."""

    class Parameters(Base):
        legs: int = param(4, doc="how many", ge=0)
        weights: list[float] = param([1.0], doc="in kilograms", gt=0)


class Bird(Animal):
    """Flies."""

    class Parameters(Animal.Parameters):
        legs: int = param(2, doc="how many", ge=0)
        wings: int = param(doc="how many")


class Penguin(Bird):
    """Does not."""


def test_parameters_are_inherited_and_overridden_like_any_class() -> None:
    assert [item.key for item in declarations_of(Bird.Parameters)] == ["legs", "weights", "wings"]
    assert entry_of("animal", "penguin", Penguin).parameters == declarations_of(Bird.Parameters)
    assert declarations_of(Bird.Parameters)[0].default == 2
    assert declarations_of(Bird.Parameters)[2].default is REQUIRED


@pytest.mark.parametrize("values", [{"legs": -1}, {"legs": True}, {"legs": "4"}, {"weights": [0.0]}, {"lgs": 4}])
def test_parameters_built_by_hand_are_held_to_types_and_bounds(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Animal.Parameters(**values)


def test_an_entry_survives_json() -> None:
    entry = entry_of("animal", "bird", Bird)
    assert entry.doc == "Flies."
    assert Entry.from_json("animal", "bird", entry.to_json()) == entry


def test_a_field_without_param_is_a_mistake_that_is_named() -> None:
    class Wrong:
        class Parameters(Base):
            legs: int = 4

    with pytest.raises(TypeError, match=r"Parameters\.legs must be made with param"):
        entry_of("animal", "wrong", Wrong)


def test_a_class_without_parameters_declares_nothing() -> None:
    assert entry_of("animal", "stone", type("Stone", (), {})).parameters == ()
