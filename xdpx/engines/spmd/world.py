"""The processes that train together: how they connect, wait for each other, and agree.

Messages go through JAX's coordinator, from host to host: no device takes part, so a thread may send them, for example
while it saves and the devices are busy.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import jax
from jax.experimental import multihost_utils

from xdpx.config.faults import first_line, refusal

ADDRESS = ("JAX_COORDINATOR_ADDRESS",)
SIZE = ("JAX_NUM_PROCESSES", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
INDEX = ("JAX_PROCESS_ID", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LOCAL_INDEX = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
MASTER, MASTER_PORT = "MASTER_ADDR", "MASTER_PORT"
"""Environment variables set by launchers: JAX's own, and those of torchrun, Open MPI and MPICH."""

TPU_PODS = frozenset({"gcetpu", "gketpu"})
"""JAX's names of cluster types where it finds the other processes itself, as it also does under Slurm."""

FORGOTTEN_TOGETHER = 256
"""Number of broadcasts after which the processes wait for each other and delete these from the coordinator."""

PATIENCE_SECONDS = 1800.0
"""How long a process waits for the others."""
FINDING_SECONDS = 300.0
"""How long processes may take to connect at the start."""


def start(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = FINDING_SECONDS,
) -> bool:
    """Connect to the other processes, once, before anything uses a device of JAX; on all processes.

    Args:
        coordinator: `host:port` of the first process; by default from the launcher's environment variables.
        num_processes: number of processes; the same default.
        process_id: index of this one, from 0; the same default.
        environment: used instead of this process's environment.
        seconds: how long to wait for the others.

    Returns:
        Whether there are others. On a TPU pod and under Slurm, JAX finds them itself.

    Raises:
        ConfigError: one of the three is missing, or they contradict each other.
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
    """Disconnect from the other processes; does nothing if there are none."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def leave(code: int) -> None:
    """Exit at once after a failure, if there are other processes; does nothing if there are none.

    At a normal exit JAX waits for the others, which wait for this one in an update: all would hang until a watch ends
    them, and the watch knows nothing of the failure.
    """
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def process_index() -> int:
    """Return the index of this process, from 0."""
    return int(jax.process_index())


def process_count() -> int:
    """Return the number of processes."""
    return int(jax.process_count())


def local_index(environment: Mapping[str, str] | None = None) -> int:
    """Return the index of this process on its machine if the launcher sets it, otherwise its index among all."""
    found = _number(LOCAL_INDEX, os.environ if environment is None else environment)
    return process_index() if found is None else found


class Preempted:
    """Finds out that the run is being preempted, at the same call on all processes, which must call it equally often.

    A signal to one process reaches all. Always False for a single process, which handles the signal itself. A call
    is cheap: JAX counts the calls, and its processes communicate only after a signal.
    """

    def __init__(self) -> None:
        self._is_so = False

    def __call__(self) -> bool:
        """Return whether the run is being preempted; once true, it stays true."""
        if not self._is_so and process_count() > 1:
            self._is_so = bool(multihost_utils.reached_preemption_sync_point(next(_calls)))
        return self._is_so


_calls = count(1)
"""Numbers for the calls of all `Preempted`: JAX wants them to grow."""


_talks: dict[str, tuple[Iterator[int], list[str]]] = {}
"""By name of a `Talk`: the counter for its unique keys, and the keys of broadcasts that are not yet deleted."""


class Talk:
    """A channel between the processes; all of them must make the same calls in the same order.

    Each thread needs its own, with a different name; otherwise their messages would be mixed up.

    Args:
        name: of the channel, e.g. "save".
        seconds: how long to wait for the others.
    """

    def __init__(self, name: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        self.name, self._milliseconds = name, int(seconds * 1000)
        self._numbers, self._said = _talks.setdefault(name, (count(), []))

    def barrier(self, label: str = "") -> None:
        """Wait until all processes have called this.

        Raises:
            TimeoutError: some have not; the message says where this one waited.
        """
        if process_count() > 1:
            self._wait(f"{self._next()}{label and '/'}{label}")

    def exchange(self, value: object) -> list[Any]:
        """Return the values of all processes, by index. A value must be serialisable as JSON."""
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
        """Return the values of all processes: another name of `exchange`."""
        return self.exchange(value)

    def broadcast(self, value: object) -> Any:
        """Return the value of the first process, which normally does not wait for the others."""
        if process_count() == 1:
            return value
        client, word = _client(), self._next()
        if process_index() == 0:
            text = json.dumps(value)
            client.key_value_set(word, text)
        else:
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
        """Return whether the flag is true on any process."""
        return any(self.exchange(bool(flag)))

    def report(self, value: object) -> list[Any]:
        """Return the last reported values of all processes, by index, without waiting; None for those without one.

        Unlike the other calls, this one may be made by any number of processes, any number of times.

        Args:
            value: of this process, serialisable as JSON; it replaces the previous one.
        """
        if process_count() == 1:
            return [value]
        client, word = _client(), f"xdpx/{self.name}/reported"
        client.key_value_set(f"{word}/{process_index():08d}", json.dumps(value), allow_overwrite=True)
        found = {int(key.rpartition("/")[2]): json.loads(text) for key, text in client.key_value_dir_get(word)}
        return [found.get(index) for index in range(process_count())]

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
                f"'{word}' for the others ({first_line(error)}). Look at their logs: one has ended, or hangs."
            ) from error


_main = Talk("main")


def barrier(name: str) -> None:
    """Wait until all processes have called this; from the main thread only."""
    _main.barrier(name)


def agree_any(flag: bool) -> bool:
    """Return whether the flag is true on any process; from the main thread only, on all processes."""
    return _main.agree_any(flag)


def _client() -> Any:
    # JAX has no public name for it; Orbax and others use this too.
    from jax._src import distributed

    return distributed.global_state.client


def _on_a_cluster() -> bool:
    # Other clusters that JAX detects (Kubernetes, MPI) need explicit arguments: a single process may run there too.
    from jax._src.clusters import ClusterEnv

    found = {each.name for each in ClusterEnv._cluster_types if each.is_env_present()}
    lone = os.environ.get("SLURM_NTASKS", "1") == "1"
    return bool(found & TPU_PODS) or ("slurm" in found and not lone)


def _given(
    coordinator: str | None, size: int | None, index: int | None, environment: Mapping[str, str]
) -> tuple[str, int, int] | None:
    """Return (address, processes, index), None if none of them is given or there is only one process."""
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
        raise refusal(
            "processes", f"have coordinator {address}, number {size} and index {index}.",
            "Several processes need all three (--server_addr host:port, --num_hosts, --host_idx from 0, or "
            f"{ADDRESS[0]}, {SIZE[0]} and {INDEX[0]} in the environment); one process needs none.",
        )  # fmt: skip
    return address, size, index


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        text = environment.get(name, "").strip()
        if text:
            if not text.isdecimal():
                problem = f"is '{text}' in the environment."
                raise refusal(name, problem, "A launcher sets it to a whole number; unset it.")
            return int(text)
    return None
