from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.datasets.inputs.packing import first_fit


def naive(lengths: list[tuple[int, int]], limits: tuple[int, int]) -> list[int]:
    """Each example into the first row with room, one example after the other."""
    rows: list[list[int]] = []
    placed = []
    for one, two in lengths:
        if not one + two:
            placed.append(-1)
            continue
        found = next((i for i, (a, b) in enumerate(rows) if a + one <= limits[0] and b + two <= limits[1]), len(rows))
        if found == len(rows):
            rows.append([0, 0])
        rows[found][0] += one
        rows[found][1] += two
        placed.append(found)
    return placed


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=40))
def test_rows_are_those_of_first_fit_example_by_example(lengths: list[tuple[int, int]]) -> None:
    packed = first_fit(np.array(lengths, np.int64).reshape(-1, 2), np.array([10, 6]))
    assert packed.rows.tolist() == naive(lengths, (10, 6))
    assert packed.num_rows == max(packed.rows, default=-1) + 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=60))
def test_rows_of_one_feature_are_those_of_first_fit_too(lengths: list[int]) -> None:
    packed = first_fit(np.array(lengths, np.int64).reshape(-1, 1), np.array([12]))
    assert packed.rows.tolist() == naive([(length, 0) for length in lengths], (12, 0))
    assert packed.num_rows == max(packed.rows, default=-1) + 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60))
def test_examples_of_a_row_follow_one_another_without_a_gap(lengths: list[int]) -> None:
    packed = first_fit(np.array(lengths, np.int64)[:, None], np.array([12]))
    for row in range(packed.num_rows):
        which = np.flatnonzero(packed.rows == row)
        sizes = np.array(lengths)[which]
        assert packed.starts[which, 0].tolist() == (np.cumsum(sizes) - sizes).tolist()
        assert packed.segments[which].tolist() == list(range(1, len(which) + 1))
        assert sizes.sum() <= 12


def test_an_example_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Example 1 has \[13\] tokens, a row \[12\]. Trim"):
        first_fit(np.array([[3], [13]]), np.array([12]))


def test_rows_cut_out_count_from_nought() -> None:
    packed = first_fit(np.array([[5], [6], [4], [5]]), np.array([9]))
    which, part = packed.of(1, 2)
    assert packed.rows.tolist() == [0, 1, 0, 2]
    assert which.tolist() == [1, 3]
    assert part.rows.tolist() == [0, 1]
