from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.processors.randomness import below, bits, key, mix, permute, units


def test_the_hash_is_that_of_splitmix64() -> None:
    # The first numbers of SplitMix64 seeded with 1234567, as in the test of Java's SplittableRandom ports.
    state = np.array([1234567], np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(bits(state, place)[0]) for place in range(3)] == expected


def test_nothing_may_change_what_a_key_draws() -> None:
    assert int(key(1, 2, 3)[0]) == 7702586659592502839
    assert permute(np.arange(10), 10, key(1, 2)).tolist() == [3, 0, 6, 8, 4, 9, 7, 2, 1, 5]


def test_the_parts_of_a_key_are_not_interchangeable() -> None:
    assert len({int(key(*parts)[0]) for parts in [(1, 2), (2, 1), (1,), (1, 2, 0), (-1, 2)]}) == 5


@given(st.integers(1, 300), st.integers(0, 99))
def test_permute_gives_each_item_once(size: int, seed: int) -> None:
    assert sorted(permute(np.arange(size), size, key(seed)).tolist()) == list(range(size))


@given(st.integers(1, 10**12), st.integers(0, 99), st.data())
def test_a_stretch_of_an_order_needs_nothing_of_the_rest(size: int, seed: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    together = permute(places, size, key(seed))
    assert together.tolist() == [int(permute(np.array([place]), size, key(seed))[0]) for place in places]
    assert ((together >= 0) & (together < size)).all()


@pytest.mark.parametrize("size", [10, 100])
def test_every_item_is_as_likely_at_every_place(size: int) -> None:
    rounds = 1000
    counts = np.zeros((size, size))
    for epoch in range(rounds):
        counts[np.arange(size), permute(np.arange(size), size, key(5, epoch))] += 1
    expected = rounds / size
    freedom = (size - 1) ** 2
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - freedom) < 4 * np.sqrt(2 * freedom)


def test_units_and_integers_are_uniform() -> None:
    words = bits(key(3), np.arange(100_000))
    assert abs(units(words).mean() - 0.5) < 0.004
    assert units(words).min() >= 0
    assert units(words).max() < 1
    counts = np.bincount(below(words, 7), minlength=7)
    assert len(counts) == 7
    assert ((counts - 100_000 / 7) ** 2 / (100_000 / 7)).sum() < 25


def test_mix_is_a_bijection_on_what_we_see() -> None:
    words = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(mix(words))) == len(words)
