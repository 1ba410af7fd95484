from xdpx.reports.differences import difference_lines


def test_each_kind_of_difference_has_its_mark():
    left, right = {"a": 1, "b": 2, "same": [1]}, {"b": 3, "c": "x", "same": [1]}
    assert difference_lines(left, right) == ["-- a: 1", "+- b: 2 -> 3", "++ c: 'x'"]


def test_a_value_of_none_differs_from_a_key_that_is_not_there():
    assert difference_lines({"a": None}, {}) == ["-- a: None"]


def test_equal_settings_give_no_line():
    assert difference_lines({"a": 1.0}, {"a": 1.0}) == []
