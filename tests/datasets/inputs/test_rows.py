from __future__ import annotations

import numpy as np
import pytest

from xdpx.datasets.inputs.rows import as_batch, filled_to, join_rows, num_rows, pad_rows, with_sample_weights
from xdpx.utils.nested_map import NestedMap


def batch(*rows: int) -> NestedMap:
    return as_batch({"a": list(rows), "deep": {"weights": np.ones(len(rows)), "paddings": np.zeros(len(rows))}})


def test_dicts_of_lists_become_maps_of_arrays() -> None:
    made = batch(1, 2)
    assert made.deep.weights.tolist() == [1, 1]
    assert isinstance(made.a, np.ndarray)


def test_numbers_are_as_wide_as_devices_have_them() -> None:
    made = as_batch({"a": np.array([1]), "b": np.array([0.5]), "c": np.array([True])})
    assert [made[name].dtype.name for name in "abc"] == ["int32", "float32", "bool"]
    with pytest.raises(ValueError, match="'a' holds 1099511627776"):
        as_batch({"a": np.array([1 << 40])})


def test_rows_are_counted_and_disagreement_is_told() -> None:
    assert num_rows(batch(1, 2, 3)) == 3
    with pytest.raises(ValueError, match="different numbers of rows"):
        num_rows(as_batch({"a": [1], "b": [1, 2]}))


def test_rows_that_fill_up_repeat_the_first_and_weigh_nothing() -> None:
    padded = pad_rows(with_sample_weights(batch(7, 8)), 2)
    assert padded.a.tolist() == [7, 8, 7, 7]
    assert padded.deep.weights.tolist() == [1, 1, 0, 0]
    assert padded.deep.paddings.tolist() == [0, 0, 1, 1]
    assert padded.eval_sample_weights.tolist() == [1, 1, 0, 0]


def test_parts_are_joined_and_filled() -> None:
    assert join_rows([batch(1), batch(2, 3)]).a.tolist() == [1, 2, 3]
    assert filled_to([batch(1), batch(2)], 3).a.tolist() == [1, 2, 1]
