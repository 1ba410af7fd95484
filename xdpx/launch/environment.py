"""Find out the rank of this process: from torchrun, accelerate or MPI, from Slurm, or from the keys of the config.

The result is stored in the variables of torchrun (RANK, WORLD_SIZE, ...), which all later code reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal

FIRST_PORT, NUM_PORTS = 20_000, 12_000
MPI_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
NUMBERS = (
    "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *MPI_SIZES,
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_JOB_ID",
)  # fmt: skip
"""Variables of launchers that are whole numbers."""


@dataclass(frozen=True)
class LaunchKeys:
    """The keys of a config that describe its processes.

    Attributes:
        nproc: processes to start on this machine.
        world_size: total number of processes.
        rank: number of this process.
        local_rank: number of this process on its machine.
        init_method: how processes find each other: auto, env://, tcp://<host>:<port>.
    """

    nproc: int | None = None
    world_size: int | Literal["auto"] = "auto"
    rank: int = 0
    local_rank: int | None = None
    init_method: str = "auto"


def adopt_launch(keys: LaunchKeys, environment: MutableMapping[str, str] = os.environ) -> int:
    """Set the variables of torchrun from the launcher or the config, and return the number of processes.

    Args:
        keys: of the config.
        environment: read, and updated in place.

    Returns:
        The number of processes that a launcher has started; 0 without one.

    Raises:
        ConfigError: the config contradicts the launcher, or lacks a key that is needed without one; or the launcher's
            variables make no sense.
    """
    _refuse_other_numbers(environment)
    if "WORLD_SIZE" not in environment or environment["WORLD_SIZE"] == "1":
        if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # set by srun, but not by sbatch
            environment.update(_by_slurm(environment, keys))
        elif keys.init_method not in {"auto", "env://"}:
            environment.update(_by_keys(keys))
    size = next((int(environment[name]) for name in ("WORLD_SIZE", *MPI_SIZES) if environment.get(name)), 1)
    launched = size > 1 or "MASTER_ADDR" in environment
    if not launched and keys.init_method == "env://":
        problem = "is env://, but RANK, WORLD_SIZE and MASTER_ADDR are not set."
        remedy = "Start it by torchrun or accelerate launch, or set nproc to start processes here."
        raise refusal("distributed_init_method", problem, remedy)
    if not launched and keys.local_rank:
        problem = f"is {keys.local_rank}, but only one process was started, and there is no address of the first."
        remedy = "Use device_id to choose a GPU; or set distributed_init_method: tcp://<host>:<port>, or nproc."
        raise refusal("local_rank", problem, remedy)
    faults = _contradictions(keys, size, environment) if launched else []
    if faults:
        raise ConfigError(THIS_RUN, faults)
    return size if launched else 0


@contextmanager
def as_launched(count: int, *, machines: int, by_srun: bool) -> Generator[None]:
    """Let `adopt_launch` find the variables of `count` processes inside, as the first of them would elsewhere."""
    if count == 1:
        yield
        return
    before = dict(os.environ)
    if by_srun:
        tasks = {"SLURM_STEP_NUM_TASKS": str(count), "SLURM_STEP_NUM_NODES": str(machines)}
        os.environ.update({**tasks, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"})
    else:
        there = {
            "RANK": "0",
            "WORLD_SIZE": str(count),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": str(count // machines),
            "MASTER_ADDR": "first",
            "MASTER_PORT": "29500",
        }
        os.environ.update(there)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _refuse_other_numbers(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for each variable of a launcher that is not a number, or a rank that is none of the size."""
    found = {name: environment[name].strip() for name in NUMBERS if environment.get(name, "").strip()}
    remedy = "Unset it for a single process, or start all by torchrun, accelerate launch or srun, which set it."
    faults = [
        Fault(name, f"is '{text}', but launchers set a whole number.", remedy)
        for name, text in found.items()
        if not text.isdecimal()
    ]
    size, rank = found.get("WORLD_SIZE", "1"), found.get("RANK", "0")
    if not faults and ("MASTER_ADDR" in environment or int(size) > 1) and int(rank) >= int(size):
        faults = [Fault("RANK", f"is {rank}, but WORLD_SIZE is {size}, and ranks start at 0.", remedy)]
    if faults:
        raise ConfigError("the environment", faults)


def _contradictions(keys: LaunchKeys, size: int, environment: Mapping[str, str]) -> list[Fault]:
    """Return a fault for each key that contradicts the launcher, as it would otherwise be silently ignored."""
    remedy, faults = "Leave it out.", []
    here = int(environment.get("LOCAL_WORLD_SIZE", size))
    for key, wanted, count in (("nproc", keys.nproc, here), ("distributed_world_size", keys.world_size, size)):
        if isinstance(wanted, int) and wanted != count:
            where = " on each machine" if key == "nproc" and here != size else ""
            problem = f"is {wanted}, but the launcher has started {count} process{'es' * (count > 1)}{where}."
            faults.append(Fault(key, problem, remedy))
    numbers = ("distributed_rank", keys.rank or None, "RANK"), ("local_rank", keys.local_rank, "LOCAL_RANK")
    faults += [
        Fault(key, f"is {wanted}, but the launcher says {environment[name]}.", remedy)
        for key, wanted, name in numbers
        if wanted is not None and environment.get(name, str(wanted)) != str(wanted)
    ]
    if keys.init_method.startswith("tcp://") and "MASTER_ADDR" in environment:
        meeting = f"tcp://{environment['MASTER_ADDR']}:{environment.get('MASTER_PORT', '')}"
        if keys.init_method != meeting:
            problem = f"is {keys.init_method}, but the processes of this launcher rendezvous at {meeting}."
            faults.append(Fault("distributed_init_method", problem, remedy))
    return faults


def _by_slurm(environment: Mapping[str, str], keys: LaunchKeys) -> dict[str, str]:
    """Return the variables for a task of an srun step; an address in the config takes precedence."""
    size, nodes = int(environment["SLURM_STEP_NUM_TASKS"]), int(environment.get("SLURM_STEP_NUM_NODES", 1))
    job = int(environment.get("SLURM_JOB_ID", 0))
    found = {
        "RANK": environment["SLURM_PROCID"], "WORLD_SIZE": str(size), "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(-(-size // nodes)), "GROUP_RANK": environment.get("SLURM_NODEID", "0"),
    }  # fmt: skip
    if keys.init_method not in {"auto", "env://"}:
        return found | _meeting_place(keys.init_method)
    address = first_host(environment.get("SLURM_STEP_NODELIST", "127.0.0.1"))
    port = str(FIRST_PORT + job % NUM_PORTS)  # equal for all tasks, different for the next job
    return found | {
        "MASTER_ADDR": environment.get("MASTER_ADDR", address), "MASTER_PORT": environment.get("MASTER_PORT", port)
    }  # fmt: skip


def _by_keys(keys: LaunchKeys) -> dict[str, str]:
    """Return the variables for a process started by hand with the distributed_* keys."""
    meeting = _meeting_place(keys.init_method)
    size, rank = keys.world_size, keys.rank
    if not isinstance(size, int) or rank >= size:
        problem = f"is {size}, and distributed_rank is {rank}, but distributed_init_method is for several machines."
        remedy = "Set the number of processes; ranks are below it."
        raise refusal("distributed_world_size", problem, remedy)
    local = {} if keys.local_rank is None else {"LOCAL_RANK": str(keys.local_rank)}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **meeting, **local}


def _meeting_place(init_method: str) -> dict[str, str]:
    """Return the variables of the rendezvous address, from a key such as `tcp://first:29500`.

    Raises:
        ConfigError: it is not of the form tcp://<host>:<port>.
    """
    found = re.fullmatch(r"tcp://(.+):(\d+)", init_method)
    if found is None:
        remedy = "Use auto, env://, or tcp://<host of rank 0>:<port>."
        raise refusal("distributed_init_method", f"is '{init_method}'.", remedy)
    return {"MASTER_ADDR": found[1], "MASTER_PORT": found[2]}


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm host list, such as `gpu[03-05,9],login`."""
    prefix, bracket, rest = nodes.partition("[")
    if not bracket or "," in prefix:
        return nodes.partition(",")[0]
    inside, _, after = rest.partition("]")
    return prefix + re.split("[,-]", inside)[0] + after.partition(",")[0]
