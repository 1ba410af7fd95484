"""The processes that train together: how they find each other, wait for each other, and agree.

What is said here goes through JAX's coordinator, host to host: no device takes part, so it may be said from a thread
that saves while the devices are at work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import jax
from jax.experimental import multihost_utils

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

ADDRESS = ("JAX_COORDINATOR_ADDRESS",)
SIZE = ("JAX_NUM_PROCESSES", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
INDEX = ("JAX_PROCESS_ID", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LOCAL_INDEX = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
MASTER, MASTER_PORT = "MASTER_ADDR", "MASTER_PORT"
"""What launchers set: JAX's own names, those of torchrun, of Open MPI and of MPICH."""

TPU_PODS = frozenset({"gcetpu", "gketpu"})
"""What JAX calls the places where it finds the other processes by itself; under Slurm it does, too."""

FORGOTTEN_TOGETHER = 256
"""After so many words to all, they wait for one another, and the coordinator forgets these words."""

PATIENCE_SECONDS = 1800.0
"""After so long a process stops waiting for the others."""
FINDING_SECONDS = 300.0
"""They must have found each other after so long."""


def start(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = FINDING_SECONDS,
) -> bool:
    """Join the other processes, once, before anything else asks JAX for a device; on all processes.

    Args:
        coordinator: `host:port` of the first process; by default what a launcher has put into the environment.
        num_processes: how many there are.
        process_id: which one this is, from 0.
        environment: instead of this process's.
        seconds: to wait for the others.

    Returns:
        Whether there are others. On a TPU pod and under Slurm, JAX finds them by itself.

    Raises:
        ConfigError: a part of the three is missing, or they contradict one another.
    """
    if jax.distributed.is_initialized():
        return process_count() > 1
    jax.config.update("jax_enable_preemption_service", True)
    given = _given(coordinator, num_processes, process_id, os.environ if environment is None else environment)
    if given is None:
        if not _on_a_cluster():
            return False
        jax.distributed.initialize(initialization_timeout=int(seconds))
    else:
        address, size, index = given
        jax.distributed.initialize(address, size, index, initialization_timeout=int(seconds))
    return process_count() > 1


def stop() -> None:
    """Part from the other processes; nothing happens when there are none."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def process_index() -> int:
    """Return which process this is, from 0."""
    return int(jax.process_index())


def process_count() -> int:
    """Return how many processes there are."""
    return int(jax.process_count())


def local_index(environment: Mapping[str, str] | None = None) -> int:
    """Return which process of its machine this is, as the launcher says; its index among all, where none says."""
    found = _number(LOCAL_INDEX, os.environ if environment is None else environment)
    return process_index() if found is None else found


def preempted(step: int) -> bool:
    """Tell whether the machine is about to be taken away, at the same step on all processes; ask once per step.

    A signal to one process is told to all. False without others: there the signal itself says it.
    """
    return process_count() > 1 and bool(multihost_utils.reached_preemption_sync_point(step))


_talks: dict[str, tuple[Iterator[int], list[str]]] = {}
"""By the name of a part: the numbers of its next words, as none is said twice, and what the coordinator remembers."""


class Talk:
    """A way to speak with the same part of the other processes; all of them must say the same things in order.

    Threads need one each, with different names, or their words would be mixed up.

    Args:
        name: of the part that speaks, e.g. "save".
        seconds: to wait for the others.
    """

    def __init__(self, name: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        self.name, self._milliseconds = name, int(seconds * 1000)
        self._numbers, self._said = _talks.setdefault(name, (count(), []))

    def barrier(self, label: str = "") -> None:
        """Wait until all are here.

        Raises:
            TimeoutError: some are not; the message says at what this one waited.
        """
        if process_count() > 1:
            self._wait(f"{self._next()}{label and '/'}{label}")

    def exchange(self, value: object) -> list[Any]:
        """Return what every process said, by index. A value is what JSON can hold."""
        if process_count() == 1:
            return [value]
        client, word = _client(), self._next()
        mine = f"{word}/{process_index():08d}"
        client.key_value_set(mine, json.dumps(value))
        self._wait(f"{word}/said")
        found = sorted(client.key_value_dir_get(word))
        self._wait(f"{word}/heard")
        client.key_value_delete(mine)
        return [json.loads(text) for _, text in found]

    def gather(self, value: object) -> list[Any]:
        """Return what every process said: another name of `exchange`."""
        return self.exchange(value)

    def broadcast(self, value: object) -> Any:
        """Return what the first process said, which does not wait for the others."""
        if process_count() == 1:
            return value
        client, word = _client(), self._next()
        if process_index() == 0:
            client.key_value_set(word, json.dumps(value))
        with self._in_vain(word):
            text = client.blocking_key_value_get(word, self._milliseconds)
        self._said.append(word)
        if len(self._said) == FORGOTTEN_TOGETHER:  # all have heard them when all are here
            self._wait(f"{word}/forgotten")
            for each in self._said if process_index() == 0 else ():
                client.key_value_delete(each)
            self._said.clear()
        return json.loads(text)

    def agree_any(self, flag: bool) -> bool:
        """Tell whether any process says yes."""
        return any(self.exchange(bool(flag)))

    def _next(self) -> str:
        return f"xdpx/{self.name}/{next(self._numbers)}"

    def _wait(self, word: str) -> None:
        with self._in_vain(word):
            _client().wait_at_barrier(word, self._milliseconds)

    @contextmanager
    def _in_vain(self, word: str) -> Generator[None]:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            raise TimeoutError(
                f"process {process_index()} of {process_count()} waited {self._milliseconds / 1000:.0f} seconds at "
                f"'{word}' for the others, in vain ({str(error).splitlines()[0]}). Look at their logs: one has ended, "
                "or hangs."
            ) from error


_main = Talk("main")


def barrier(name: str) -> None:
    """Wait, in the main thread, until all processes are here."""
    _main.barrier(name)


def agree_any(flag: bool) -> bool:
    """Tell, in the main thread, whether any process says yes; on all processes."""
    return _main.agree_any(flag)


def _client() -> Any:
    # JAX has no public name for it; Orbax and others take it from here, too.
    from jax._src import distributed

    return distributed.global_state.client


def _on_a_cluster() -> bool:
    # Others that JAX knows (Kubernetes, MPI) are asked for in so many words: a lone process may run there, too.
    from jax._src.clusters import ClusterEnv

    found = {each.name for each in ClusterEnv._cluster_types if each.is_env_present()}
    lone = os.environ.get("SLURM_NTASKS", "1") == "1"
    return bool(found & TPU_PODS) or ("slurm" in found and not lone)


def _given(
    coordinator: str | None, size: int | None, index: int | None, environment: Mapping[str, str]
) -> tuple[str, int, int] | None:
    """Return (address, processes, index), None when nobody says anything, or says that there is one process only."""
    address = coordinator or next((environment[name] for name in ADDRESS if environment.get(name)), None)
    if address is None and environment.get(MASTER):
        address = f"{environment[MASTER]}:{environment.get(MASTER_PORT) or 29500}"
    if address is None and size is None and index is None:
        return None
    size = _number(SIZE, environment) if size is None else size
    index = _number(INDEX, environment) if index is None else index
    if size == 1:
        return None
    if address is None or size is None or index is None or not 0 <= index < size:
        raise ConfigError(THIS_RUN, [Fault(
            "processes", f"have coordinator {address}, number {size} and index {index}.",
            "Several processes need all three (--server_addr host:port, --num_hosts, --host_idx from 0, or "
            f"{ADDRESS[0]}, {SIZE[0]} and {INDEX[0]} in the environment); one process needs none.",
        )])  # fmt: skip
    return address, size, index


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        text = environment.get(name, "").strip()
        if text:
            if not text.isdecimal():
                problem = f"is '{text}' in the environment."
                raise ConfigError(THIS_RUN, [Fault(name, problem, "A launcher sets it to a whole number; unset it.")])
            return int(text)
    return None
