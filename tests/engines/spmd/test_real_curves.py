"""Model, task and learner of experiments learn the same on every mesh, in every stack, and from any checkpoint."""

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.tiers import nightly, some
from xdpx.checkpoints import spmd_files
from xdpx.engines.spmd.partitioning import path_name

HERE = Path(__file__)
ALL_AXES = ([2, 2, 2], None)
TWO_SLICES = ([1, 1, 4], [2, 1, 1])
MESHES = [([8, 1, 1], None), ([1, 8, 1], None), ALL_AXES, ([1, 2, 4], None), ([1, 4, 1], [2, 1, 1])]
STACKS = [
    ("repeated", [1, 1, 1]),
    ("pipelined", [1, 1, 1, 1]),
    ("pipelined", [2, 1, 2, 2]),
    ("pipelined twice", [2, 2, 2, 1]),
]
pytestmark = pytest.mark.slow


def load():
    spec = importlib.util.spec_from_file_location("spmd_lm", HERE.with_name("lm.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


lm = load()
ALL = range(lm.STEPS)


@cache
def engine_on(*ici):
    """Return the engine on a mesh that several tests use: it is compiled once."""
    return lm.engine(list(ici))


@pytest.fixture(scope="module")
def curve():
    """Losses of fifty updates on one device."""
    engine = lm.engine([1, 1, 1])
    _, losses = lm.train(engine, engine.start(3), ALL)
    assert losses[-1] < losses[0] - 2
    return losses


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An engine on all three axes, its state after five updates, and the checkpoint of it."""
    engine = engine_on(2, 2, 2)
    state, _ = lm.train(engine, engine.start(3), range(5))
    return engine, state, spmd_files.save(state, tmp_path_factory.mktemp("saved"), step=5)


def bits(state):
    return {path_name(path): np.asarray(leaf).tobytes() for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


# Of one slice that all axes split; the two processes below are two slices. The toy model learns on every mesh.
@pytest.mark.parametrize(("ici", "dcn"), some(MESHES, [ALL_AXES]), ids=str)
def test_losses_of_fifty_updates_are_those_of_one_device(curve, ici, dcn):
    engine = engine_on(*ici) if (ici, dcn) == ALL_AXES else lm.engine(ici, dcn)
    _, losses = lm.train(engine, engine.start(3), ALL)
    assert losses == pytest.approx(curve, rel=0, abs=1e-5)
    assert set(engine.compilations.values()) == {1}


# Loss and gradients of a pipeline, also twice around, are compared in tests/models/spmd/layers/test_pipelined.py.
@nightly(
    "tests/models/spmd/layers/test_repeated.py::test_a_repeated_stack_is_the_unrolled_one_with_the_same_weights_gradients_too"
)
@pytest.mark.parametrize(("stack", "ici"), STACKS)
def test_repeated_and_pipelined_layers_learn_what_layers_in_a_row_learn(unrolled, stack, ici):
    params, expected = unrolled
    engine = lm.engine(ici, stack=stack)
    state = engine.start(3)
    state["params"] = jax.device_put(lm.restacked(params, stack), engine.plan.placed["params"])
    _, losses = lm.train(engine, state, ALL)
    assert losses == pytest.approx(expected, rel=0, abs=1e-5)


@pytest.fixture(scope="module")
def unrolled():
    """The first weights of layers in a row, and the losses of fifty updates from there."""
    engine = lm.engine([1, 1, 1], stack="unrolled")
    params = jax.tree.map(np.array, engine.start(3)["params"])
    _, losses = lm.train(engine, engine.start(3), ALL)
    assert losses[-1] < losses[0] - 2
    return params, losses


@pytest.mark.parametrize(
    ("ici", "dcn"), some([([1, 1, 1], None), ([1, 8, 1], None), TWO_SLICES], [([1, 1, 1], None), TWO_SLICES]), ids=str
)
def test_a_checkpoint_is_restored_bit_for_bit_on_another_mesh_and_back(saved, tmp_path, ici, dcn):
    first, state, path = saved
    engine = lm.engine(ici, dcn)
    there = spmd_files.restore(path, engine.target)
    assert bits(there) == bits(state)
    assert jax.tree.map(lambda leaf: leaf.sharding, there) == engine.plan.placed
    back = spmd_files.restore(spmd_files.save(there, tmp_path, step=5), first.target)
    assert bits(back) == bits(state)


# There, the toy model trains in two processes, which share checkpoints with this one.
@nightly("tests/engines/spmd/test_world.py::test_two_processes_lose_what_one_device_loses")
def test_two_real_processes_learn_what_one_device_learns_and_one_goes_on_from_their_checkpoint(curve, jax_pair):
    saved, end = 30, lm.STEPS
    folder = jax_pair(HERE.with_name("lm_two_processes.py"), str(saved), str(end))
    for index in range(2):
        assert json.loads((folder / f"found.{index}").read_text()) == pytest.approx(curve[:end], rel=0, abs=1e-5)
    engine = engine_on(2, 2, 2)
    state = spmd_files.restore(folder / f"checkpoint_{saved:08d}", engine.target)
    _, losses = lm.train(engine, state, range(saved, lm.STEPS))
    assert losses == pytest.approx(curve[saved:], rel=0, abs=1e-5)
