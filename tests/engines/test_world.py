"""The place of a process, as each launcher says it. Real groups of processes: `test_strategies.py`."""

import time

import pytest
import torch

from xdpx.engines.pytorch import world
from xdpx.engines.pytorch.world import current


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch):
    for name in (*world.RANK, *world.SIZE, *world.LOCAL_RANK, *world.LOCAL_SIZE, "GROUP_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    world.forget()
    yield
    world.forget()


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)


@pytest.fixture
def joined(monkeypatch):
    """What the process group would be started with."""
    calls = []
    monkeypatch.setattr(world.dist, "init_process_group", lambda *args, **kwargs: calls.append((args, kwargs)))
    return calls


def launched(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_without_a_launcher_a_process_is_alone():
    found = current()
    assert (found.rank, found.size, found.mode, found.num_gpus) == (0, 1, "single", 0)
    assert found.device == torch.device("cpu")
    assert found.is_main
    assert found.is_local_main


def test_torchrun_says_rank_node_and_size(monkeypatch, joined):
    launched(monkeypatch, RANK=3, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, GROUP_RANK=1, MASTER_ADDR="a")
    found = current(timeout=5)
    assert (found.rank, found.size, found.local_rank, found.local_size, found.node) == (3, 4, 1, 2, 1)
    assert found.mode == "distributed"
    assert not found.is_main
    (backend,), settings = joined[0]
    assert backend == "gloo"
    assert settings["init_method"] == "env://"
    assert settings["timeout"].total_seconds() == 5


def test_the_group_is_started_once(monkeypatch, joined):
    launched(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="a")
    assert current() is current()
    assert len(joined) == 1


def test_the_backend_that_is_asked_for_is_taken(monkeypatch, joined):
    launched(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="a")
    current(backend="mpi")
    assert joined[0][0] == ("mpi",)


def test_a_container_that_sets_a_size_of_one_is_no_launcher(monkeypatch):
    launched(monkeypatch, WORLD_SIZE=1, RANK=0)
    assert current().mode == "single"


def test_a_launch_of_one_process_is_one_without_a_group(monkeypatch, joined):
    launched(monkeypatch, WORLD_SIZE=1, RANK=0, LOCAL_RANK=0, MASTER_ADDR="a")
    assert current().mode == "distributed"
    assert joined == []


def test_without_words_about_machines_all_processes_are_on_this_one(monkeypatch, joined):
    launched(monkeypatch, RANK=2, WORLD_SIZE=4, MASTER_ADDR="a")
    found = current()
    assert (found.local_rank, found.local_size, found.node) == (2, 4, 0)


def test_each_process_of_a_launch_takes_its_own_gpu(monkeypatch, joined, two_gpus):
    launched(monkeypatch, RANK=3, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, MASTER_ADDR="a")
    found = current()
    assert found.device == torch.device("cuda", 1)
    assert found.num_gpus == 1
    assert joined[0][0] == ("cpu:gloo,cuda:nccl",)
    assert joined[0][1]["device_id"] == torch.device("cuda", 1)


def test_a_task_that_slurm_gave_one_gpu_takes_the_one_it_sees(monkeypatch, joined, two_gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "h100:1")
    launched(monkeypatch, RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, MASTER_ADDR="a")
    assert current().device == torch.device("cuda", 0)


def test_one_process_drives_all_gpus_it_sees(two_gpus):
    found = current()
    assert (found.mode, found.num_gpus, found.device) == ("data_parallel", 2, torch.device("cuda", 0))


def test_the_cpu_may_be_asked_for_by_argument_or_by_accelerate(monkeypatch, two_gpus):
    assert current(use_cpu=True).device == torch.device("cpu")
    launched(monkeypatch, ACCELERATE_USE_CPU="true")
    assert current().device == torch.device("cpu")
    assert current().mode == "single"


def test_more_processes_than_gpus_are_refused(monkeypatch, two_gpus):
    launched(monkeypatch, RANK=2, WORLD_SIZE=3, LOCAL_RANK=2, LOCAL_WORLD_SIZE=3, MASTER_ADDR="a")
    with pytest.raises(ValueError, match="2 are visible for 3 processes. Start at most 2"):
        current()


def test_mps_is_taken_by_itself_and_by_one_process_alone(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert current().device == torch.device("mps")
    assert current().num_gpus == 1
    launched(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="a")
    with pytest.raises(ValueError, match="2 processes were started on Apple's MPS"):
        current()


def test_other_accelerators_are_taken_by_their_own_name(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    assert current().device == torch.device("xpu", 0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 and WORLD_SIZE is 2; ranks go from 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'.*integer"),
    ],
)
def test_a_launcher_that_contradicts_itself_is_refused(monkeypatch, values, said):
    launched(monkeypatch, **values)
    with pytest.raises(ValueError, match=said):
        current()


def test_a_process_that_waits_for_the_others_says_so(monkeypatch, capsys):
    monkeypatch.setattr(world, "SECONDS_IN_SILENCE", 0.001)
    monkeypatch.setattr(world.dist, "init_process_group", lambda *args, **kwargs: time.sleep(0.2))
    monkeypatch.setattr(world.atexit, "register", lambda function: None)
    launched(monkeypatch, RANK=1, WORLD_SIZE=3, MASTER_ADDR="first", MASTER_PORT=99)
    current()
    assert "process 1 of 3 still waits for the others, at first:99" in capsys.readouterr().err
