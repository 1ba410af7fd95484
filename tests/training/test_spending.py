"""What is wrong with the time of a training is said in words, and only where it is."""

from __future__ import annotations

import random

import pytest

from xdpx.training.spending import Spent, shares, troubles

DRAW = random.Random(0)


def even(count: int = 500, *, data: float = 0.001, update: float = 0.05) -> list[Spent]:
    return [Spent(data * DRAW.uniform(0.5, 2), update * DRAW.uniform(0.8, 1.5), 0.0005) for _ in range(count)]


def test_nothing_is_said_of_an_even_training() -> None:
    assert troubles(even()) == {}
    assert troubles([]) == {}


def test_slow_steps_without_a_rhythm_are_the_machines_own() -> None:
    spent = even()
    for index in DRAW.sample(range(len(spent)), 20):
        spent[index] = Spent(0.001, 0.6, 0.0)
    assert troubles(spent) == {}


def test_a_data_bound_training_is_named() -> None:
    found = troubles(even(data=0.06))
    assert list(found) == ["data"]
    assert found["data"].startswith("data-bound: ")


def test_updates_that_take_no_time_are_bound_by_nothing() -> None:
    assert troubles([Spent(1e-4, 1e-5, 1e-5)] * 100) == {}


def test_data_that_is_waited_for_while_the_device_works_is_no_fault() -> None:
    assert troubles([Spent(0.02, 0.01, 0.001, waiting=0.07)] * 100) == {}


@pytest.mark.parametrize("every", [4, 10, 100])
@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("data", "the cause is the data"),
        ("update", "the cause is the update itself"),
        ("callbacks", "the cause is callbacks"),
    ],
)
def test_a_slow_step_every_so_many_is_named_with_what_makes_it_so(every: int, phase: str, words: str) -> None:
    spent = even(every * 6)
    for index in range(every - 1, len(spent), every):
        times = {"data": 0.001, "update": 0.05, "callbacks": 0.001}
        spent[index] = Spent(**{**times, phase: 0.5})
    found = troubles(spent)["slow"]
    assert found.startswith(f"a slow step every {every}: it takes ")
    assert words in found


def test_shares_of_the_time_are_said_largest_first() -> None:
    said = shares({"update": 90.0, "data": 8.0, "evaluating": 1.9, "beginning": 0.1})
    assert said.endswith(": updates 90%, waiting for data 8%, evaluating 2%")
