"""Compilations are counted by function and shape, and too many are told."""

import logging

import numpy as np

from xdpx.engines.spmd.retracing import MANY_SHAPES, Retraces, shape_text


def test_shapes_in_one_line_say_equal_ones_once():
    batch = {"a": np.zeros((2, 3), np.int32), "b": np.zeros((2, 3), np.int32), "c": np.zeros((), np.float32)}
    assert shape_text(batch) == "2xint32[2,3] float32[]"


def test_a_second_compilation_for_the_same_shape_is_told(caplog):
    found, batch = Retraces(), {"a": np.zeros((2, 3))}
    with caplog.at_level(logging.WARNING, logger="xdpx"):
        found.note("update", batch)
        found.note("score", batch)
        assert not caplog.records
        found.note("update", batch)
    assert found.counts == {"update float64[2,3]": 2, "score float64[2,3]": 1}
    assert "compiled for the second time: update float64[2,3]" in caplog.text


def test_many_shapes_of_one_function_are_told_once(caplog):
    found = Retraces()
    with caplog.at_level(logging.WARNING, logger="xdpx"):
        for length in range(1, 2 * MANY_SHAPES):
            found.note("update", {"a": np.zeros((2, length))})
    assert len(caplog.records) == 1
    assert f"compiled for {MANY_SHAPES} shapes" in caplog.text
