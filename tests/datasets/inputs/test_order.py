from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.datasets.inputs.order import PLACES_PER_BLOCK, Blend, Order, num_batches, part_of, weights_of


@given(size=st.integers(1, 50) | st.integers(1023, 1027), seed=st.integers(0, 9), epochs=st.integers(1, 3))
def test_every_epoch_holds_every_example_once(size: int, seed: int, epochs: int) -> None:
    rows = Order(size, seed, repeat=True).at(np.arange(size * epochs)).reshape(epochs, size)
    assert np.array_equal(np.sort(rows, axis=1), np.tile(np.arange(size), (epochs, 1)))


def test_each_epoch_has_an_order_of_its_own() -> None:
    first, second = Order(100, 3, repeat=True).at(np.arange(200)).reshape(2, 100)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, Order(100, 4, repeat=True).at(np.arange(100)))


@pytest.mark.parametrize("size", [97, 1500])
def test_any_place_is_found_without_those_before_it(size: int) -> None:
    order = Order(size, 5, repeat=True)
    assert order.at(np.arange(4000))[317:333].tolist() == order.at(np.arange(317, 333)).tolist()


@given(batch=st.integers(1, 5), hosts=st.integers(1, 5), step=st.integers(0, 4))
def test_parts_of_all_hosts_are_the_global_batch(batch: int, hosts: int, step: int) -> None:
    first = step * batch * hosts
    parts = [part_of(batch, hosts, host, first=first) for host in range(hosts)]
    assert np.concatenate(parts).tolist() == list(range(first, first + batch * hosts))


def test_batches_are_counted_from_sizes_alone() -> None:
    assert num_batches(5, 2, 1, pad=True) == 3
    assert num_batches(5, 2, 2, pad=True) == 2
    assert num_batches(5, 2, 2, pad=False) == 1


def test_a_blend_keeps_its_proportions_exactly() -> None:
    which, _ = Blend((10, 20, 30), (1.0, 2.0, 5.0), seed=1).at(np.arange(PLACES_PER_BLOCK * 3))
    assert [count for _, count in sorted(Counter(which.tolist()).items())] == [1536, 3072, 7680]


def test_each_dataset_of_a_blend_goes_through_its_epochs() -> None:
    which, rows = Blend((7, 11), (1.0, 3.0), seed=2).at(np.arange(PLACES_PER_BLOCK))
    for part, size in enumerate((7, 11)):
        drawn = rows[which == part]
        assert sorted(drawn[:size].tolist()) == list(range(size))
        assert sorted(drawn[size : 2 * size].tolist()) == list(range(size))


def test_a_blend_is_the_same_from_any_place() -> None:
    blend = Blend((7, 11), (0.3, 0.7), seed=2)
    which, rows = blend.at(np.arange(10_000))
    again, again_rows = blend.at(np.arange(4090, 4110))
    assert which[4090:4110].tolist() == again.tolist()
    assert rows[4090:4110].tolist() == again_rows.tolist()


def test_no_dataset_is_left_out_however_little_it_weighs() -> None:
    assert Blend((5, 5, 5), (1e-9, 1e-9, 1.0)).quotas.tolist() == [1, 1, PLACES_PER_BLOCK - 2]


def test_rates_that_are_not_given_follow_sizes() -> None:
    assert weights_of([3, 9], [None, None]) == (3.0, 9.0)
    assert weights_of([3, 9], [1, 2]) == (1.0, 2.0)


@pytest.mark.parametrize("rates", [[1.0, None], [1.0, 0.0], [1.0, -2.0]])
def test_rates_that_say_nothing_are_refused(rates: list[float | None]) -> None:
    with pytest.raises(ValueError, match="rates"):
        weights_of([3, 9], rates)
