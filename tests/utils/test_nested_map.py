import copy
import pickle

import pytest

from xdpx.utils.nested_map import NestedMap


def _sample() -> NestedMap:
    return NestedMap(b=1, a=NestedMap(d=2, c=[3, 4]))


def test_items_are_attributes_at_every_depth():
    sample = _sample()
    sample.a.e = 5
    assert sample.a.e == sample["a"]["e"] == 5


def test_a_missing_name_is_told_with_those_that_are_there():
    with pytest.raises(AttributeError, match="no 'z'. It has: b, a"):
        _ = _sample().z


def test_a_name_of_a_method_is_refused_as_attribute():
    with pytest.raises(AttributeError, match="method of NestedMap"):
        NestedMap().Pack = 3


def test_leaves_come_sorted_with_dotted_paths():
    assert _sample().FlattenItems() == [("a.c[0]", 3), ("a.c[1]", 4), ("a.d", 2), ("b", 1)]


def test_pack_undoes_flatten():
    sample = _sample()
    assert sample.Pack(sample.Flatten()) == sample


def test_pack_refuses_a_wrong_number_of_leaves():
    with pytest.raises(ValueError, match="3 leaves for a map of 4"):
        _sample().Pack([1, 2, 3])


def test_transform_keeps_the_structure():
    assert _sample().Transform(lambda leaf: leaf * 10).Flatten() == [30, 40, 20, 10]


def test_a_deep_copy_has_its_own_structure():
    sample = _sample()
    other = copy.deepcopy(sample)
    other.a.d = 9
    assert sample.a.d == 2


def test_paths_are_read_and_written_with_dots():
    made = NestedMap()
    made.Set("x.y", 1)
    assert made.Get("x.y") == 1
    assert made.Get("x.z", 7) == 7


def test_plain_dicts_become_maps_and_back():
    plain = {"a": {"b": [{"c": 1}]}}
    made = NestedMap.FromNestedDict(plain)
    assert made.a.b[0].c == 1
    assert type(made.ToNestedDict()["a"]) is dict


def test_maps_of_the_same_paths_are_compatible_whatever_their_leaves():
    one = NestedMap(a=NestedMap(b=1), c=[2, 3])
    assert one.IsCompatible(one.Transform(str))
    assert not one.IsCompatible(NestedMap(a=NestedMap(b=1), c=[2]))
    assert not one.IsCompatible(NestedMap(a=1, c=[2, 3]))


def test_filter_leaves_out_what_becomes_empty():
    assert _sample().Filter(lambda leaf: leaf == 1) == {"b": 1}


def test_a_map_can_be_pickled():
    assert pickle.loads(pickle.dumps(_sample())).a.d == 2  # noqa: S301
