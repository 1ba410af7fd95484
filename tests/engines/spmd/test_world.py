"""Two real processes with gloo do what one does; and what launchers say is understood."""

import json
from pathlib import Path

import numpy as np
import pytest

from xdpx.checkpoints import spmd_files, spmd_folders
from xdpx.config.faults import ConfigError
from xdpx.engines.spmd import world


@pytest.fixture(scope="module")
def pair(jax_pair, engine_on, toy):
    """What the two processes found, and the folder they shared with this one."""
    engine = engine_on([2, 2, 2])

    def save_alone(folder):
        state, _ = toy.train(engine, 10)
        spmd_files.save(state, folder / "alone", step=10)

    folder = jax_pair(Path(__file__).with_name("two_processes.py"), prepare=save_alone)
    return [json.loads((folder / f"found.{index}").read_text()) for index in range(2)], folder


def test_two_processes_lose_what_one_device_loses(pair, curve):
    for found in pair[0]:
        assert found["losses"] + found["more"] == pytest.approx(curve[:15], rel=0, abs=1e-5)


def test_each_slice_is_one_process_and_reads_an_input_of_its_own(pair):
    first, second = pair[0]
    assert first["slices"] == [[0], [1]]
    assert (first["infeed"], second["infeed"]) == ([0, 2], [1, 2])
    assert first["infeed of tensor"] == second["infeed of tensor"] == [0, 1]


def test_what_two_processes_save_while_training_one_restores_bit_for_bit(pair, engine_on, toy):
    (first, second), folder = pair
    path = str(folder / "checkpoints" / "checkpoint_00000010")
    assert first["path"] == second["path"] == path == spmd_folders.newest(folder / "checkpoints")
    assert (first["input"], second["input"]) == ({"host": 0}, {"host": 1})
    engine = engine_on([1, 8, 1])
    state = spmd_files.restore(path, engine.target)
    tensors = engine.snapshot(state)["tensors"].values()
    assert first["snapshot"] == second["snapshot"] == float(sum(np.abs(each.float().numpy()).sum() for each in tensors))


def test_what_one_process_saves_two_continue(pair, curve):
    for found in pair[0]:
        assert found["continued"] == pytest.approx(curve[10:15], rel=0, abs=1e-5)


def test_each_process_gets_the_predictions_of_its_own_rows_and_the_sums_of_all(pair, one_device, toy):
    (first, second), folder = pair
    state = spmd_files.restore(folder / "alone" / "checkpoint_00000010", one_device.target)
    scored = one_device.predictions_to_host(one_device.score(state, toy.batch_of(99)))
    assert first["rows"] + second["rows"] == scored["best"].tolist()
    assert first["loss"] == second["loss"] == pytest.approx(scored["sum of loss"] / scored["weight of loss"], abs=1e-5)


def test_processes_agree_and_refuse_rows_that_cannot_be_dealt_out(pair):
    for found in pair[0]:
        assert found["agreed"] == [True, False, "from 0"]
        assert found["reported"] == [0, 1]
        assert "a batch of 1 rows per process" in found["refused"]
        assert "Use a multiple of 2 as batch_size" in found["refused"]


@pytest.mark.parametrize(
    "environment",
    [
        {"JAX_COORDINATOR_ADDRESS": "host:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"},
        {"MASTER_ADDR": "host", "MASTER_PORT": "1", "WORLD_SIZE": "4", "RANK": "2"},
    ],
    ids=["jax", "torchrun"],
)
def test_what_launchers_put_into_the_environment_is_understood(environment):
    assert world._given(None, None, None, environment) == ("host:1", 4, 2)


def test_one_process_needs_nothing_and_finds_nobody():
    assert world._given(None, None, None, {"WORLD_SIZE": "1", "MASTER_ADDR": "host"}) is None
    assert not world.start(environment={})
    assert world.agree_any(True)
    assert world.Talk("x").exchange({"a": 1}) == [{"a": 1}]
    assert not world.Preempted()()


def test_half_a_launch_is_refused_with_what_is_missing():
    with pytest.raises(ConfigError, match="coordinator host:1, number 4 and index None"):
        world.start("host:1", 4, environment={})
    with pytest.raises(ConfigError, match="WORLD_SIZE: is 'four'"):
        world.start("host:1", environment={"WORLD_SIZE": "four"})


def test_a_process_that_failed_leaves_at_once_if_there_are_others(monkeypatch):
    left = []
    monkeypatch.setattr("os._exit", left.append)
    for several in (False, True):
        monkeypatch.setattr("jax.distributed.is_initialized", lambda several=several: several)
        world.leave(1)
    assert left == [1]
