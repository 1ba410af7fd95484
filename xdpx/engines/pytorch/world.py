"""Which process this is, among how many, and on which device: read from whatever launcher started it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.distributed as dist

Mode = Literal["single", "data_parallel", "distributed"]

RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
"""The names under which torchrun (also by way of `accelerate launch`) and three kinds of MPI say it."""

TRUE = frozenset({"1", "true", "yes", "y", "on", "t"})
DEFAULT_TIMEOUT = timedelta(seconds=1800)
SECONDS_TO_LET_GO = 0.1
"""What a thread on a busy machine may need until it runs once."""


@dataclass(frozen=True)
class World:
    """Where this process stands.

    Attributes:
        rank: index of this process among all, from 0.
        size: how many processes train together.
        local_rank: index of this process on its machine.
        local_size: how many processes there are on this machine.
        node: index of this machine.
        device: where this process computes.
        mode: "distributed" under a launcher, "data_parallel" for one process that sees several GPUs, else "single".
        num_gpus: how many accelerators this process drives: 0 on a CPU, more than 1 with "data_parallel" only.
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
    """Return the place of a process that trains by itself, whatever others there are."""
    return World(0, 1, 0, 1, 0, device, "single", int(device.type != "cpu"))


@dataclass(frozen=True)
class _Launch:
    """What the launcher said; `launched` is False where there was none."""

    launched: bool = False
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node: int = 0


def current(*, use_cpu: bool = False, backend: str | None = None, timeout: float | timedelta | None = None) -> World:
    """Return the place of this process, and join it with the others, once, when there are several. On all processes.

    Args:
        use_cpu: compute on the CPU although there may be something faster.
        backend: of torch.distributed, e.g. "gloo" or "nccl"; None takes the one that fits the device.
        timeout: seconds after which a process gives up waiting for the others; None is half an hour.

    Raises:
        ValueError: the launcher's words contradict one another, or what it asks for is not on this machine.
        RuntimeError: the processes do not find each other.
    """
    wait = DEFAULT_TIMEOUT if timeout is None else _seconds(timeout)
    use_cpu = use_cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in TRUE
    return _world(_read_launch(), use_cpu, backend, wait)


def forget() -> None:
    """Let the next `current` look at the machine again. A process group that is up stays up."""
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
    """Choose what is fastest here; a process of a launch takes the device with its own local index."""
    if use_cpu:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return _own_gpu(launch)
    if torch.backends.mps.is_available():
        if launch.size > 1:
            raise ValueError(
                f"device: {launch.size} processes were started on Apple's MPS, which one process alone can use. "
                "Start the script by plain python, or set use_cpu=True to train on several CPU processes."
            )
        return torch.device("mps")
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if other is None else torch.device(other.type, launch.local_rank)


def _own_gpu(launch: _Launch) -> torch.device:
    seen = torch.cuda.device_count()
    # Slurm shows each task that it gave one GPU (--gpus-per-task=1) that one alone, whatever the task's number.
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
    # The standard variables are only read: without them (MPI on one machine) torch is told in so many words.
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "29500")
    by_torchrun = "MASTER_ADDR" in os.environ and "RANK" in os.environ and "WORLD_SIZE" in os.environ
    where: dict[str, Any] = {"init_method": "env://" if by_torchrun else f"tcp://{address}:{port}"}
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if by_torchrun and life != "0" and os.environ.get("GROUP_WORLD_SIZE") == "1":
        where = {"store": _store_of_life(life, launch, timeout)}
    dist.init_process_group(
        backend or default_backend(device),
        rank=launch.rank,
        world_size=launch.size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
        **where,
    )
    atexit.register(_leave)


def _store_of_life(life: str, launch: _Launch, timeout: timedelta) -> Any:
    """Return torchrun's store under a name of its own for each time that it started the processes of one machine.

    Those that died have left their addresses in it: one that read such an old one would wait for nobody.
    """
    from torch._C._distributed_c10d import PrefixStore  # a torch without distributed does not have these
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", launch.rank, launch.size, timeout=timeout))
    store.set_timeout(timeout)
    return PrefixStore(f"life-{life}", store)


def join_alone(device: torch.device) -> None:
    """Make a process group of this process alone, for what cannot do without one."""
    from torch._C._distributed_c10d import HashStore  # a torch without distributed does not have it

    store = HashStore()
    dist.init_process_group(default_backend(device), store=store, rank=0, world_size=1)
    atexit.register(_leave)


def default_backend(device: torch.device) -> str:
    """Return the backend of torch.distributed that fits a device. Gloo is added for what is on the host."""
    if device.type == "cpu":
        return "gloo"
    own = dist.get_default_backend_for_device(device)
    return f"cpu:gloo,{device.type}:{own}"


def leave() -> None:
    """Leave the process group, and wait until its threads have let go of what they worked on.

    A thread of gloo drops the tensors of its last work a moment after that is reported done, and takes Python's lock to
    do so: once the interpreter is being torn down, that aborts the process (pytorch/pytorch#190489). Nothing tells when
    it has; the threads of a group that nothing refers to any more are joined.
    """
    dist.destroy_process_group()
    gc.collect()
    time.sleep(SECONDS_TO_LET_GO)


def _leave() -> None:
    # After an error the others may be waiting for this process: only a launcher can end that, and it does.
    failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
    if dist.is_initialized() and not failed:
        leave()
