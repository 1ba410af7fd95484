"""Meshes of experiments, and what they say when nothing is defined."""

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments import BaseExperiment


@pytest.mark.parametrize(
    ("ici", "dcn", "devices", "shape"),
    [
        ((-1, 1, 1), None, 8, (8, 1, 1)), ((1, -1, 2), None, 8, (1, 4, 2)), ((1, 4, 1), (2, 1, 1), 8, (2, 4, 1)),
        ((1, -1, 1), (2, 1, 1), 8, (2, 4, 1)), ((2, 1, 2, 2), None, 8, (2, 1, 2, 2)),
    ],
)  # fmt: skip
def test_one_axis_fills_up_and_slices_multiply(ici, dcn, devices, shape) -> None:
    mesh = BaseExperiment(ICI_MESH_SHAPE=ici, DCN_MESH_SHAPE=dcn).mesh_shape(devices)
    assert (mesh.shape, mesh.num_devices) == (shape, 8)
    assert mesh.names[-3:] == ("replica", "data", "mdl")


@pytest.mark.parametrize(
    ("ici", "dcn", "planned", "shape"),
    [
        ((-1, 2, 1), None, 1, (1, 2, 1)), ((-1, 1, 1), (2, 1, 1), 1, (2, 1, 1)), ((-1, 3, 1), None, 8, (3, 3, 1)),
        ((-1, 1, 1), None, 8, (8, 1, 1)),
    ],
)  # fmt: skip
def test_while_the_devices_are_unknown_there_are_as_many_as_fit(ici, dcn, planned, shape) -> None:
    experiment = BaseExperiment(ICI_MESH_SHAPE=ici, DCN_MESH_SHAPE=dcn, PLAN_DEVICES=planned)
    experiment.validate()
    assert experiment.mesh_shape().shape == shape


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ICI_MESH_SHAPE": (1, 2)}, "has 2 numbers"),
        ({"ICI_MESH_SHAPE": (-1, -1, 1)}, "At most one axis may be -1"),
        ({"ICI_MESH_SHAPE": (0, 1, 1)}, "above 0"),
        ({"DCN_MESH_SHAPE": (2, 1)}, "Give both the same axes"),
        ({"ICI_MESH_SHAPE": (-1, 3, 1)}, "does not divide 8 devices"),
        ({"MESH_AXIS_NAMES": ("a",)}, "has 1 names for 3 axes"),
    ],
)
def test_numbers_that_are_no_mesh_are_refused(fields, words) -> None:
    with pytest.raises(ConfigError, match=words):
        BaseExperiment(**fields).mesh_shape(8)


def test_an_experiment_without_a_task_says_what_to_define() -> None:
    with pytest.raises(NotImplementedError, match=r"define task\(\)"):
        BaseExperiment().task()
    with pytest.raises(ConfigError, match=r"define input_specs\(\)"):
        BaseExperiment().input_specs()
