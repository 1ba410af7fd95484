"""Who started this process, and as which of how many."""

from __future__ import annotations

import pytest

from xdpx.config.faults import ConfigError
from xdpx.launch.environment import LaunchKeys, adopt_launch, first_host

SLURM = {
    "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "3", "SLURM_PROCID": "4", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2", "SLURM_STEP_NODELIST": "gpu[03-05],login", "SLURM_JOB_ID": "12345",
}  # fmt: skip


def test_nobody_has_started_a_lone_process() -> None:
    environment = {"WORLD_SIZE": "1"}  # which containers often set
    assert adopt_launch(LaunchKeys(nproc=4), environment) == 0
    assert environment == {"WORLD_SIZE": "1"}


def test_torchrun_is_taken_at_its_word() -> None:
    environment = {"WORLD_SIZE": "4", "RANK": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    assert adopt_launch(LaunchKeys(init_method="env://", world_size=4), dict(environment)) == 4
    with pytest.raises(ConfigError, match="launcher has started 4 processes"):
        adopt_launch(LaunchKeys(nproc=2), dict(environment))
    assert adopt_launch(LaunchKeys(nproc=2), {**environment, "LOCAL_WORLD_SIZE": "2"}) == 4  # of this machine


def test_a_step_of_slurm_names_its_first_host_and_a_port_that_all_tasks_know() -> None:
    environment = dict(SLURM)
    assert adopt_launch(LaunchKeys(), environment) == 6
    said = {name: environment[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")}
    assert said == {"RANK": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "2"}
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("gpu03", "20345")


def test_torchrun_inside_a_step_of_slurm_decides() -> None:
    environment = {**SLURM, "WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "here"}
    assert adopt_launch(LaunchKeys(), environment) == 2
    assert environment["RANK"] == "1"


def test_keys_start_a_process_by_hand() -> None:
    environment: dict[str, str] = {}
    keys = LaunchKeys(world_size=3, rank=2, local_rank=1, init_method="tcp://first:2222")
    assert adopt_launch(keys, environment) == 3
    assert environment == {
        "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "2222"
    }  # fmt: skip


def test_a_step_of_slurm_meets_where_the_config_says() -> None:
    environment = dict(SLURM)
    assert adopt_launch(LaunchKeys(world_size=6, rank=4, init_method="tcp://there:2222"), environment) == 6
    said = {name: environment[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    assert said == {"RANK": "4", "WORLD_SIZE": "6", "MASTER_ADDR": "there", "MASTER_PORT": "2222"}
    assert adopt_launch(LaunchKeys(init_method="tcp://there:2222"), environment) == 6  # asked once more


@pytest.mark.parametrize("keys", [
    LaunchKeys(local_rank=0), LaunchKeys(rank=1), LaunchKeys(init_method="tcp://first:2222"),
])  # fmt: skip
def test_what_a_launcher_says_otherwise_is_refused(keys: LaunchKeys) -> None:
    environment = {"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    with pytest.raises(ConfigError, match="Leave it out"):
        adopt_launch(keys, environment)


def test_a_local_rank_that_nobody_launched_is_refused_and_that_of_the_first_is_what_it_is() -> None:
    assert adopt_launch(LaunchKeys(local_rank=0), {}) == 0
    with pytest.raises(ConfigError, match="Use device_id to choose a GPU"):
        adopt_launch(LaunchKeys(local_rank=1), {})


@pytest.mark.parametrize("keys", [
    LaunchKeys(init_method="env://"),
    LaunchKeys(init_method="here"),
    LaunchKeys(init_method="tcp://first", world_size=2),
    LaunchKeys(init_method="tcp://first:2222"),
    LaunchKeys(init_method="tcp://first:2222", world_size=2, rank=2),
])  # fmt: skip
def test_what_is_left_open_is_refused(keys: LaunchKeys) -> None:
    with pytest.raises(ConfigError):
        adopt_launch(keys, {})


@pytest.mark.parametrize(("there", "said"), [
    ({"WORLD_SIZE": "two"}, "WORLD_SIZE: is 'two', but launchers set a whole number"),
    ({**SLURM, "SLURM_PROCID": "-1"}, "SLURM_PROCID: is '-1'"),
    ({"WORLD_SIZE": "2", "RANK": "5"}, "RANK: is 5, but WORLD_SIZE is 2"),
    ({"WORLD_SIZE": "0", "MASTER_ADDR": "here"}, "RANK: is 0, but WORLD_SIZE is 0"),
])  # fmt: skip
def test_variables_of_a_launcher_that_make_no_sense_are_refused(there: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"the environment: 1 fault\n  {said}"):
        adopt_launch(LaunchKeys(), there)


@pytest.mark.parametrize(("nodes", "first"), [
    ("gpu[03-05,9],login", "gpu03"), ("a", "a"), ("a,b[1-2]", "a"), ("n[7]-ib", "n7-ib"), ("n[1-2]-ib,m", "n1-ib"),
])  # fmt: skip
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
