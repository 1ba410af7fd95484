"""Which process this is, among how many, and on which device: read from the launcher's environment variables."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from threading import Timer
from typing import Any, Literal

import torch
import torch.distributed as dist

from xdpx.logger import log
from xdpx.utils.decisions import TRUE_WORDS

Mode = Literal["single", "data_parallel", "distributed"]

RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
"""Environment variables set by torchrun (which `accelerate launch` also uses) and by three kinds of MPI."""

DEFAULT_TIMEOUT = timedelta(seconds=1800)
SECONDS_IN_SILENCE = 20.0
"""Time after which a process that waits for the others says so."""
SECONDS_TO_LET_GO = 0.1
"""Time within which a thread on a busy machine should have run once."""


@dataclass(frozen=True)
class World:
    """The place of this process among all processes.

    Attributes:
        rank: index of this process among all, from 0.
        size: number of processes that train together.
        local_rank: index of this process on its machine.
        local_size: number of processes on this machine.
        node: index of this machine.
        device: where this process computes.
        mode: "distributed" under a launcher, "data_parallel" for one process that sees several GPUs, else "single".
        num_gpus: number of accelerators this process drives: 0 on a CPU, more than 1 only with "data_parallel".
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    device: torch.device
    mode: Mode
    num_gpus: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this is the first process of all."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """Whether this is the first process of its machine."""
        return self.local_rank == 0


def alone(device: torch.device) -> World:
    """Return the place of a process that trains alone, regardless of other processes."""
    return World(0, 1, 0, 1, 0, device, "single", int(device.type != "cpu"))


@dataclass(frozen=True)
class _Launch:
    """What the launcher's environment variables say; `launched` is False without a launcher."""

    launched: bool = False
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node: int = 0


def current(*, use_cpu: bool = False, backend: str | None = None, timeout: float | timedelta | None = None) -> World:
    """Return the place of this process; the first call starts the process group if there are several processes.

    On all processes.

    Args:
        use_cpu: compute on the CPU even if there is a faster device.
        backend: of torch.distributed, e.g. "gloo" or "nccl"; None takes the one that fits the device.
        timeout: seconds after which a process stops waiting for the others; None is half an hour.

    Raises:
        ValueError: the launcher's variables contradict each other, or name devices that this machine does not have.
        RuntimeError: the processes do not find each other.
    """
    wait = DEFAULT_TIMEOUT if timeout is None else _seconds(timeout)
    use_cpu = use_cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in TRUE_WORDS
    return _world(_read_launch(), use_cpu, backend, wait)


def forget() -> None:
    """Make the next `current` inspect the machine again. An initialized process group stays."""
    _world.cache_clear()


@lru_cache
def _world(launch: _Launch, use_cpu: bool, backend: str | None, timeout: timedelta) -> World:
    device = _device(launch, use_cpu=use_cpu)
    if launch.size > 1 and not dist.is_initialized():
        _join(launch, device, backend, timeout)
    seen = torch.cuda.device_count() if device.type == "cuda" else int(device.type != "cpu")
    many = not launch.launched and seen > 1
    mode: Mode = "distributed" if launch.launched else "data_parallel" if many else "single"
    return World(
        rank=launch.rank, size=launch.size, local_rank=launch.local_rank, local_size=launch.local_size,
        node=launch.node, device=device, mode=mode, num_gpus=seen if many else min(seen, 1),
    )  # fmt: skip


def _seconds(timeout: float | timedelta) -> timedelta:
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)


def _read_launch() -> _Launch:
    if dist.is_available() and dist.is_initialized():  # by the user's script, or by an earlier call
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        size, rank = _number(SIZE, 1), _number(RANK, 0)
        if size == 1 and "MASTER_ADDR" not in os.environ:
            return _Launch()  # WORLD_SIZE=1 alone is often set by containers
        if not 0 <= rank < size:
            raise ValueError(
                f"environment: RANK is {rank} and WORLD_SIZE is {size}; ranks go from 0 to {size - 1}. Start the "
                "processes by torchrun or accelerate launch, which set both, or unset both for a single process."
            )
    local_size = _number(LOCAL_SIZE, size)
    local_rank = _number(LOCAL_RANK, rank % local_size)
    return _Launch(True, rank, size, local_rank, local_size, _number(("GROUP_RANK",), rank // local_size))


def _number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        text = os.environ.get(name, "").strip()
        if text:
            try:
                return int(text)
            except ValueError:
                raise ValueError(
                    f"environment: {name} is '{text}'. It is set by a launcher (torchrun, accelerate launch) to an "
                    "integer; unset it for a single process."
                ) from None
    return otherwise


def _device(launch: _Launch, *, use_cpu: bool) -> torch.device:
    """Return the fastest device here; launched processes each take the device with their local index."""
    if use_cpu:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return _own_gpu(launch)
    if torch.backends.mps.is_available():
        if launch.size > 1:
            raise ValueError(
                f"device: {launch.size} processes were started on Apple's MPS, which only one process can use. "
                "Start the script by plain python, or set use_cpu=True to train on several CPU processes."
            )
        return torch.device("mps")
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if other is None else torch.device(other.type, launch.local_rank)


def _own_gpu(launch: _Launch) -> torch.device:
    seen = torch.cuda.device_count()
    # With --gpus-per-task=1, Slurm makes only the task's own GPU visible to it, whatever the task's index.
    bound = seen == 1 and os.environ.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2] == "1"
    index = 0 if bound else launch.local_rank
    if index >= seen:
        raise ValueError(
            f"device: process {launch.local_rank} of this machine has no GPU of its own: {seen} are visible for "
            f"{launch.local_size} processes. Start at most {seen} per machine (--nproc_per_node), let "
            "CUDA_VISIBLE_DEVICES name more, or set use_cpu=True."
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def _join(launch: _Launch, device: torch.device, backend: str | None, timeout: timedelta) -> None:
    """Start the process group."""
    # Environment variables are only read: without the standard ones (MPI on one machine) torch gets arguments instead.
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "29500")
    by_torchrun = "MASTER_ADDR" in os.environ and "RANK" in os.environ and "WORLD_SIZE" in os.environ
    where: dict[str, Any] = {"init_method": "env://" if by_torchrun else f"tcp://{address}:{port}"}
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if by_torchrun and life != "0" and os.environ.get("GROUP_WORLD_SIZE") == "1":
        where = {"store": _store_of_life(life, launch, timeout)}
    waiting = Timer(SECONDS_IN_SILENCE, _tell_of_waiting, (launch, f"{address}:{port}", timeout))
    waiting.daemon = True
    waiting.start()
    try:
        dist.init_process_group(
            backend or default_backend(device),
            rank=launch.rank,
            world_size=launch.size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
            **where,
        )
    finally:
        waiting.cancel()
    atexit.register(_leave)


def _tell_of_waiting(launch: _Launch, place: str, timeout: timedelta) -> None:
    log.warning(
        f"process {launch.rank} of {launch.size} still waits for the others, at {place}, for up to "
        f"{timeout.total_seconds():g} seconds. Were all of them started (WORLD_SIZE is {launch.size}), and is this the "
        "address of the machine of rank 0 (MASTER_ADDR)?"
    )


def _store_of_life(life: str, launch: _Launch, timeout: timedelta) -> Any:
    """Return torchrun's store with a key prefix for the current restart of the processes of one machine.

    Processes that died have left their addresses in the store: reading an old one would mean waiting in vain.
    """
    from torch._C._distributed_c10d import PrefixStore  # a torch without distributed does not have these
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", launch.rank, launch.size, timeout=timeout))
    store.set_timeout(timeout)
    return PrefixStore(f"life-{life}", store)


def join_alone(device: torch.device) -> None:
    """Start a process group of this process alone, for code that needs one."""
    from torch._C._distributed_c10d import HashStore  # a torch without distributed does not have it

    store = HashStore()
    dist.init_process_group(default_backend(device), store=store, rank=0, world_size=1)
    atexit.register(_leave)


def default_backend(device: torch.device) -> str:
    """Return the backend of torch.distributed for a device. Gloo is added for tensors on the host."""
    if device.type == "cpu":
        return "gloo"
    own = dist.get_default_backend_for_device(device)
    return f"cpu:gloo,{device.type}:{own}"


def leave() -> None:
    """Leave the process group, and wait until its threads have released their tensors.

    A gloo thread releases the tensors of its last work a moment after that is reported done, and takes Python's lock to
    do so: during interpreter shutdown, that aborts the process (pytorch/pytorch#190489). There is no way to see when it
    has done so; the threads of a group without references are joined.

    The last reference to the group must be one of Python: dropping it releases Python's lock first. The reducer of
    DistributedDataParallel does not, and would wait for a thread that waits for the lock.
    """
    group = dist.group.WORLD
    dist.destroy_process_group()
    gc.collect()
    del group
    time.sleep(SECONDS_TO_LET_GO)


def _leave() -> None:
    # After an error the other processes may wait for this one; only the launcher can end them, and it does.
    failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
    if dist.is_initialized() and not failed:
        leave()
