from __future__ import annotations

import pytest

from xdpx.utils.axis_splits import Split, UnknownAxis, splits

RULES = (("batch", ("replica", "data")), ("mlp", "mdl"), ("length", None))
SIZES = {"replica": 2, "data": 3, "mdl": 2}


def test_each_mesh_axis_splits_one_dimension_and_what_does_not_divide_is_told() -> None:
    found = splits(("batch", "mlp", "mdl", "length"), (4, 8, 8, 5), RULES, SIZES)
    assert found == [Split(("replica",), ("replica", "data")), Split(("mdl",), ("mdl",)), Split((), ()), Split((), ())]
    assert [split.entry for split in found] == ["replica", "mdl", None, None]
    assert splits((("replica", "data"),), (6,), RULES, SIZES)[0].entry == ("replica", "data")


def test_axes_that_the_mesh_lacks_are_left_out_and_further_dimensions_stay_whole() -> None:
    assert splits(("batch",), (6, 5), RULES, {"data": 3}) == [Split(("data",), ("data",)), Split((), ())]


def test_a_name_that_means_nothing_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnknownAxis, match="'mpl' is neither") as refused:
        splits(("mpl",), (8,), RULES, SIZES)
    assert refused.value.known == ["batch", "mlp", "length", "replica", "data", "mdl"]
    with pytest.raises(ValueError, match="has 1 dimensions, but 2 names"):
        splits(("mlp", "batch"), (8,), RULES, SIZES)
