from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.search.spaces import Categorical, Dimension, Float, Int, Space

DOCUMENTED = {
    "learning_rate": {"type": "float", "values": [1e-5, 2e-4], "log": True},
    "seed": {"type": "int", "values": [1, 1000000]},
    "hidden_size": {"type": "int", "values": [100, 300], "step": 50},
    "anneal_strategy": {"type": "categorical", "values": ["linear", "cosine"]},
    "output_dropout": {"type": "categorical", "values": [0.0, 0.1]},
}


def faults_of(table: dict[str, object]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        Space.read(table)
    return {fault.key: f"{fault.problem} {fault.remedy}" for fault in caught.value.faults}


def test_the_documented_space_is_read_and_written_back() -> None:
    space = Space.read(DOCUMENTED)
    assert Space.read(space.describe()).describe() == space.describe()
    assert {value["hidden_size"] for value in (space.sample(random.Random(n)) for n in range(200))} == {
        100, 150, 200, 250, 300,
    }  # fmt: skip


def test_integers_may_be_written_with_a_point() -> None:
    space = Space.read({"width": {"type": "int", "values": [1.0, 5.0], "step": 2.0}})
    assert repr(list(space.grid(3))) == "[{'width': 1}, {'width': 3}, {'width': 5}]"


def test_log_sampling_draws_each_decade_equally_often() -> None:
    space = Space([Float("learning_rate", 1e-5, 1e-1, log=True)])
    rng = random.Random(0)
    decades = [math.floor(math.log10(space.sample(rng)["learning_rate"])) for _ in range(4000)]  # type: ignore[arg-type]
    assert all(900 < decades.count(decade) < 1100 for decade in (-5, -4, -3, -2))


def test_log_sampling_of_integers_draws_each_octave_equally_often() -> None:
    dimension = Int("width", 1, 1023, log=True)
    drawn = [dimension.at(index / 3000) for index in range(3000)]
    octaves = [sum(2**power <= value < 2 ** (power + 1) for value in drawn) for power in range(3, 10)]
    assert max(octaves) < 1.1 * min(octaves)
    assert (min(drawn), max(drawn), dimension.at(0.99999)) == (1, 1021, 1023)


def test_a_step_with_log_is_a_factor() -> None:
    assert Int("batch_size", 8, 100, step=2, log=True).grid(5) == [8, 16, 32, 64]


def test_a_condition_takes_a_parameter_out_and_changes_no_other_draw() -> None:
    momentum = Float("momentum", 0.5, 0.9, when={"optimizer": ("sgd",)})
    dimensions = [Categorical("optimizer", ("adam", "sgd")), Float("learning_rate", 1e-5, 1e-3)]
    space = Space([momentum, *dimensions])
    drawn = [space.sample(random.Random(number)) for number in range(50)]
    assert all(("momentum" in point) == (point["optimizer"] == "sgd") for point in drawn)
    always = Space([dimensions[0], Float("momentum", 0.5, 0.9), dimensions[1]])
    free = [always.sample(random.Random(number)) for number in range(50)]
    assert [point["learning_rate"] for point in drawn] == [point["learning_rate"] for point in free]
    assert space.size == math.inf


def test_the_grid_of_a_conditional_space_holds_each_point_once() -> None:
    space = Space.read(
        {
            "momentum": {"type": "float", "values": [0.5, 0.9], "when": {"optimizer": "sgd"}},
            "optimizer": {"type": "categorical", "values": ["adam", "sgd"]},
            "layers": {"type": "int", "values": [1, 2]},
        }
    )
    points = list(space.grid(3))
    assert len(points) == 2 + 2 * 3
    assert len({str(sorted(point.items())) for point in points}) == len(points)
    assert {point["momentum"] for point in points if "momentum" in point} == {0.5, 0.7, 0.9}


def test_the_grid_of_a_log_float_is_geometric() -> None:
    assert Float("learning_rate", 1e-5, 1e-3, log=True).grid(3) == [1e-5, 1e-4, 1e-3]


def test_everything_wrong_with_a_space_is_said_at_once() -> None:
    found = faults_of(
        {
            "a": {"type": "flaot", "values": [0, 1]},
            "b": {"type": "float", "values": [1.0, 0.5]},
            "c": {"type": "float", "values": [0.0, 0.5], "log": True},
            "d": {"type": "int", "values": [1, 5], "step": 0.5},
            "e": {"type": "categorical", "values": []},
            "f": {"type": "int", "values": [1, 5], "setp": 2},
            "g": [1, 2],
            "h": {"type": "int", "values": [1, 2.5]},
            "i": {"type": "float", "values": [1, 2, 3]},
            "j": {"type": "categorical", "values": ["x", "x"]},
            "k": {"type": "float", "values": [math.nan, 1]},
            "l": {"values": [0, 1]},
            "m": {"type": "float"},
            "n": {"type": "float", "values": [0, 1], "step": 0.1},
            "o": {"type": "float", "values": [0, 1], "log": "yes"},
            "p": {"type": "int", "values": [10, 50], "step": 64},
        }
    )
    assert found.keys() == {
        "a.type", "b.values", "c.log", "d.step", "e.values", "f.setp", "g", "h.values", "i.values", "j.values",
        "k.values", "l.type", "m.values", "n.step", "o.log", "p.step",
    }  # fmt: skip
    assert "Did you mean 'float'?" in found["a.type"]
    assert "Did you mean 'step'?" in found["f.setp"]
    assert "[0.5, 1.0]" in found["b.values"]


def test_conditions_that_can_never_hold_are_refused() -> None:
    kind = {"type": "categorical", "values": ["adam", "sgd"]}
    assert "can never hold" in faults_of(
        {"kind": kind, "x": {"type": "float", "values": [0, 1], "when": {"kind": "sdg"}}}
    )["x.when.kind"]  # fmt: skip
    assert "Did you mean 'kind'?" in faults_of(
        {"kind": kind, "x": {"type": "float", "values": [0, 1], "when": {"knd": "sgd"}}}
    )["x.when.knd"]  # fmt: skip
    x = {"type": "float", "values": [0, 1]}
    assert "y will almost never be exactly" in faults_of({"y": x, "x": {**x, "when": {"y": 0.5}}})["x.when.y"]
    x = {"type": "int", "values": [0, 1], "when": {"y": 1}}
    assert "circular" in faults_of({"x": x, "y": {**x, "when": {"x": 1}}})["x.when"]
    assert "contains no parameter" in faults_of({})["space"]


dimensions = st.one_of(
    st.builds(
        lambda low, factor: Float("x", low, low * factor, log=True),
        st.floats(1e-8, 1e3), st.floats(1.0, 1e6),
    ),
    st.builds(lambda low, width: Float("x", low, low + width), st.floats(-1e3, 1e3), st.floats(0, 1e3)),
    st.builds(
        lambda low, width, step: Int("x", low, low + width, step),
        st.integers(-50, 50), st.integers(0, 300), st.none() | st.integers(1, 60),
    ),
    st.builds(lambda low, width: Int("x", low, low + width, log=True), st.integers(1, 50), st.integers(0, 300)),
    st.builds(lambda low, step: Int("x", low, low * 100, step, log=True), st.integers(1, 50), st.integers(2, 9)),
    st.builds(lambda size: Categorical("x", tuple(range(size))), st.integers(1, 9)),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@example(dimension=Float("x", 9.0, math.nextafter(9.0, 10.0), log=True), place=0.5)
@given(dimension=dimensions, place=st.floats(0, 1, exclude_max=True))
def test_every_place_has_an_allowed_value_whose_place_leads_back_to_it(dimension: Int, place: float) -> None:
    value = dimension.at(place)
    assert dimension.fault_of(value) == ""
    assert dimension.at(dimension.place_of(value)) == pytest.approx(value, rel=2e-5, abs=1e-9)
    assert dimension.size == math.inf or value in dimension.grid(2)


def test_a_condition_tells_true_from_one() -> None:
    one = Float("momentum", 0.5, 0.9, when={"nesterov": (True,)})
    assert one.holds({"nesterov": True})
    assert not one.holds({"nesterov": 1})


def test_choices_that_begin_alike_are_different_and_equal_numbers_are_not() -> None:
    folder = "out/" + "x" * 60
    space = Space.read({"weights": {"type": "categorical", "values": [f"{folder}/a", f"{folder}/b"]}})
    assert space.size == 2
    with pytest.raises(ConfigError, match="holds 1.0 twice"):
        Space.read({"factor": {"type": "categorical", "values": [1, 1.0]}})
    assert Space.read({"gates": {"type": "categorical", "values": [[True], [1]]}}).size == 2


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        (Float("x", 1, 0), "low end 1 above the high end 0"),
        (Float("x", 0, 1, log=True), "has no logarithm"),
        (Int("x", 1.5, 5), "two integers"),  # type: ignore[arg-type]
        (Int("x", 1, 5, step=0), "x.step: is 0"),
        (Categorical("x", (1, 1)), "holds 1 twice"),
        (Categorical("x", "adam"), "is 'adam'"),  # type: ignore[arg-type]
    ],
)
def test_a_space_built_in_python_is_held_to_the_rules_of_a_written_one(dimension: Dimension, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Space([dimension])


def test_a_condition_in_python_may_name_one_value_as_in_a_config() -> None:
    optimizer = Categorical("optimizer", ("adam", "sgd"))
    space = Space([optimizer, Float("momentum", 0.5, 0.9, when={"optimizer": "sgd"})])  # type: ignore[dict-item]
    assert space.dimensions[1].when == {"optimizer": ("sgd",)}


def test_a_range_of_billions_is_never_listed() -> None:
    dimension = Int("seed", 0, 2**62)
    assert dimension.grid(5)[2**61] == 2**61
