"""Grids of devices: axes within a slice and across slices, and refusals that say how many devices there are."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from xdpx.config.faults import ConfigError
from xdpx.engines.spmd import mesh as meshes
from xdpx.engines.spmd.mesh import make_mesh, mesh_text


def indices(mesh):
    return np.vectorize(lambda device: device.id)(mesh.devices)


def test_axes_have_the_documented_names_and_are_automatic():
    mesh = make_mesh([2, 2, 2])
    assert dict(mesh.shape) == {"replica": 2, "data": 2, "mdl": 2}
    assert mesh.axis_types == (AxisType.Auto,) * 3
    assert dict(make_mesh([2, 1, 2, 2]).shape) == {"stage": 2, "replica": 1, "data": 2, "mdl": 2}
    assert make_mesh([2, 4], names=["rows", "columns"]).axis_names == ("rows", "columns")
    assert mesh_text(mesh) == "replica 2 x data 2 x mdl 2 (8 cpu)"


def test_shapes_of_slices_multiply_axis_by_axis():
    assert dict(make_mesh([1, 4, 1], [2, 1, 1]).shape) == {"replica": 2, "data": 4, "mdl": 1}
    assert dict(make_mesh([1, 2, 2], [1, 2, 1]).shape) == {"replica": 1, "data": 4, "mdl": 2}


def test_a_slice_is_a_run_of_neighbours_whichever_axis_crosses_slices():
    assert indices(make_mesh([1, 4, 1], [2, 1, 1]))[:, :, 0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    inner = indices(make_mesh([1, 2, 2], [1, 1, 2]))[0]
    assert inner.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]  # mdl goes across slices: 0..3 is one, 4..7 the other


def test_devices_that_say_their_slice_are_arranged_by_it():
    devices = [
        SimpleNamespace(id=index, slice_index=index % 2, process_index=index, platform="gpu", device_kind="H200")
        for index in range(8)
    ]
    grid = meshes._grid((1, 4, 1), (2, 1, 1), devices)
    assert [{device.slice_index for device in part.flat} for part in grid] == [{0}, {1}]


def test_one_axis_takes_the_devices_that_are_left():
    assert dict(make_mesh([1, -1, 2]).shape) == {"replica": 1, "data": 4, "mdl": 2}
    assert dict(make_mesh([1, -1, 1], [2, 1, 1]).shape) == {"replica": 2, "data": 4, "mdl": 1}


@pytest.mark.parametrize(
    ("ici", "dcn", "told"),
    [
        ([1, 4, 1], None, "a mesh of 4 devices; there are 8"),
        ([3, -1, 1], None, "a mesh of 6 devices; there are 8"),
        ([8, 1], None, "have 2 numbers"),
        ([8, 1, 1], [1, 1], "have 3 and 2 numbers"),
        ([-1, -1, 1], None, "one of ICI_MESH_SHAPE may be -1"),
        ([8, 0, 1], None, "whole numbers from 1"),
        ([1, 4, 1], [-1, 1, 1], "one of ICI_MESH_SHAPE may be -1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_what_there_is(ici, dcn, told):
    with pytest.raises(ConfigError, match=told):
        make_mesh(ici, dcn)


def test_some_of_the_devices_make_a_mesh_too():
    assert make_mesh([1, 2, 1], devices=jax.devices()[2:4]).size == 2
