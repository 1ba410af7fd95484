"""Train stages as tasks of a Ray cluster, whose machines see the folders of the search under the same paths."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.config.faults import ConfigError, Fault, named
from xdpx.config.spmd_keys import SPMD
from xdpx.logger import log
from xdpx.tuning.parameters import TuneParameters
from xdpx.tuning.stages import Outcome, Stage
from xdpx.utils import io

if TYPE_CHECKING:
    from ray import ObjectRef

GIGABYTE = 1 << 30
ADDRESS = "RAY_ADDRESS"
SECONDS_TO_ANSWER = 10.0
SECONDS_WITHOUT_HEAD = 30.0
"""Time until the head of a cluster counts as lost. After 60 seconds Ray would end this process silently."""
SECONDS_BETWEEN_KNOCKS = 5.0
TRIES = 2
"""Starts of a stage without progress, if its worker is killed each time; then its trial has failed."""
STARTS = 3
"""Starts of the Ray of this search without a single stage that ends; then the search ends."""


@dataclass(frozen=True)
class Demand:
    """The resources of a machine that one stage needs.

    Attributes:
        cpus: processors, and threads of torch.
        gpus: whole GPUs.
        memory: bytes.
    """

    cpus: int
    gpus: int
    memory: int

    def words(self) -> dict[str, float]:
        """Return the resources by Ray's names."""
        wanted = {"CPU": float(self.cpus), "GPU": float(self.gpus), "memory": float(self.memory)}
        return {name: amount for name, amount in wanted.items() if amount}


def make(needs: TuneParameters, *, stage: Stage, preload: Sequence[str], output: str) -> RayExecutor:
    """Return an executor on the cluster at RAY_ADDRESS, or on a local Ray that is stopped at the end of the search.

    Raises:
        ConfigError: Ray is not installed.
        OSError: the cluster cannot be reached.
    """
    del output  # Ray keeps what workers print
    own = _connect()
    demand = demand_of(needs, stage)
    _warn_where_none_fits(demand)
    return RayExecutor(needs.parallel_runs, demand, preload=preload, own=own, head=_head())


def _head() -> str:
    """Return the `host:port` of the process that leads the cluster."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def _connect() -> bool:
    """Connect to Ray, and return whether this process started it."""
    try:
        import ray
    except ModuleNotFoundError as error:
        fault = Fault("executor", "is 'ray', which is not installed.", "Run: pip install 'xdpx[tune]'.")
        raise ConfigError("x-tune", [fault]) from error
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if os.environ.get(ADDRESS, "local") != "local":
        try:
            _knock_at(os.environ[ADDRESS])
            ray.init(address=os.environ[ADDRESS], **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise OSError(f"{ADDRESS}: no Ray cluster answers at {os.environ[ADDRESS]}: {error}") from error
        return False
    ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    return True


def _knock_at(address: str) -> None:
    """Raise OSError if nothing listens at `host:port`: Ray itself would try for minutes silently."""
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if port.isdecimal():  # neither `auto` nor a name that Ray itself looks up
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()


def demand_of(needs: TuneParameters, stage: Stage) -> Demand:
    """Return the resources of one run: a GPU per process if the cluster has GPUs, and its share of the processors."""
    there, values = _resources(), stage.run.values
    each = max(1, int(values.get("nproc") or 1))
    on_cpus = values.get("cuda") is False or values.get("engine") == SPMD
    gpus = each if there.get("GPU", 0) >= each and not on_cpus else 0
    cpus = max(each, int(there.get("CPU", 1)) // needs.parallel_runs)
    largest = max((int(node["Resources"].get("CPU", 1)) for node in _nodes()), default=1)
    return Demand(min(cpus, max(each, largest)), gpus, int(needs.min_rss * GIGABYTE))


def _nodes() -> list[dict[str, Any]]:
    """Return Ray's description of each machine that is alive."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _resources() -> dict[str, float]:
    """Return the resources of all machines together."""
    found: dict[str, float] = {}
    for node in _nodes():
        for name, amount in node["Resources"].items():
            found[name] = found.get(name, 0.0) + amount
    return found


def _warn_where_none_fits(demand: Demand) -> None:
    """Log a warning if no machine is large enough: Ray itself would wait silently."""
    wanted = demand.words()
    if any(all(node["Resources"].get(name, 0) >= amount for name, amount in wanted.items()) for node in _nodes()):
        return
    log.warning(
        f"no machine of the cluster has {wanted['CPU']:.0f} processors, {wanted.get('GPU', 0):.0f} GPUs and "
        f"{wanted['memory'] / GIGABYTE:.1f} gigabytes: trials wait until one joins. Lower min_rss, or stop and look at "
        "`ray status`."
    )


@dataclass
class _Work:
    """A running stage.

    Attributes:
        step: of the newest state of its run when it was started.
        tries: number of starts from that state.
    """

    stage: Stage
    step: int
    tries: int = 1


class RayExecutor:
    """Trains up to `capacity` stages at a time; Ray decides where.

    A worker that is lost counts against its stage, since a stage may have taken too much memory. Ray itself being lost
    does not: a Ray that was started for the search is started again, and a cluster ends the search without a result.

    Args:
        capacity: number of stages.
        demand: resources of each.
        preload: modules that a worker imports first.
        own: whether to stop Ray at the end.
        head: `host:port` of the process that leads the cluster, which must answer; '' if it is not to be asked.
    """

    def __init__(
        self, capacity: int, demand: Demand, *, preload: Sequence[str] = (), own: bool = False, head: str = ""
    ) -> None:
        import ray

        self.capacity = capacity
        self._demand, self._preload, self._own = demand, list(preload), own
        self._head, self._next_knock = head, 0.0
        self._silent_since: float | None = None
        self._active: dict[ObjectRef[Any], _Work] = {}
        self._waiting: list[_Work] = []
        self._starts = 1
        self._stopping = False
        self._remote: Any = ray.remote(max_retries=0)(_work)

    def start(self, stage: Stage) -> None:
        """Start a stage as a task."""
        self._begin(_Work(stage, _newest(stage)))

    def _begin(self, work: _Work) -> None:
        task = self._remote.options(
            name=work.stage.name, num_cpus=self._demand.cpus, num_gpus=self._demand.gpus, memory=self._demand.memory
        )
        self._active[task.remote(work.stage, self._preload, self._demand.cpus, os.getcwd())] = work

    def wait(self, seconds: float) -> list[tuple[Stage, Outcome]]:
        """Return the stages that have ended; one whose worker was killed is started again, and resumes its run."""
        import ray

        silence = self._silence()
        if silence:
            found = Outcome("interrupted") if self._stopping else _lost(silence)
            lost = [(work.stage, found) for work in self._active.values()]
            self._active.clear()  # nothing reaches them any more; Ray ends the workers of a process that has ended
            return lost
        if self._active:
            ray.wait(list(self._active), timeout=seconds)
        done, _ = ray.wait(list(self._active), num_returns=len(self._active), timeout=0) if self._active else ([], [])
        ended = []
        for reference in done:
            work = self._active.pop(reference)
            outcome = self._outcome(reference, work)
            if outcome is not None:
                self._starts = 1
                ended.append((work.stage, outcome))
        if self._waiting and not self._active:  # workers outlive their raylet until their task ends
            ended += self._restarted()
        return ended

    def _silence(self) -> str:
        """Return for how long the head of the cluster has not answered, if it counts as lost; '' otherwise."""
        now = time.monotonic()
        if not self._head or now < self._next_knock:
            return ""
        self._next_knock = now + SECONDS_BETWEEN_KNOCKS
        try:
            _knock_at(self._head)
        except OSError as error:
            self._silent_since = now if self._silent_since is None else self._silent_since
            silent = now - self._silent_since
            return f"its head has not answered for {silent:.0f} s: {error}" if silent >= SECONDS_WITHOUT_HEAD else ""
        self._silent_since = None
        return ""

    def _outcome(self, reference: ObjectRef[Any], work: _Work) -> Outcome | None:
        """Return the outcome of a stage; None if it is started once more."""
        import ray
        from ray.exceptions import (
            NodeDiedError,
            ObjectLostError,
            OutOfMemoryError,
            RayError,
            RayTaskError,
            TaskCancelledError,
            WorkerCrashedError,
        )

        try:
            found: Outcome = ray.get(reference)
        except TaskCancelledError:
            return Outcome("interrupted")
        except RayTaskError as error:  # an exception of ours, or of the user's modules
            return Outcome("world", str(error))
        except RayError as error:
            if self._stopping:
                return Outcome("interrupted")
            if isinstance(error, WorkerCrashedError | OutOfMemoryError | NodeDiedError | ObjectLostError):
                return self._once_more(work, named(error))
            return self._without_ray(work, error)
        return found

    def _once_more(self, work: _Work, reason: str) -> Outcome | None:
        step = _newest(work.stage)
        tries = work.tries + 1 if step <= work.step else 1
        where = f"at update {step}" if step >= 0 else "before its first save"
        if tries > TRIES:
            return Outcome("failed", f"its worker was lost {TRIES} times {where}, last by {reason}")
        goes_on = f"continues {where}" if step >= 0 else "starts again"
        log.warning(f"{work.stage.name}: its worker was lost ({reason}); it {goes_on}.")
        self._begin(_Work(work.stage, step, tries))
        return None

    def _without_ray(self, work: _Work, error: Exception) -> Outcome | None:
        """Keep a stage until Ray is started again; return an outcome if Ray is not of this search."""
        from ray.exceptions import LocalRayletDiedError

        if not isinstance(error, LocalRayletDiedError) or not self._own:
            return _lost(named(error))
        if not self._waiting:
            log.warning(
                "the Ray of this search was killed (perhaps memory ran out: see min_rss). It is started again once the "
                "runs that are still training have ended."
            )
        self._waiting.append(_Work(work.stage, work.step))  # what it has lost before was Ray's fault, too
        return None

    def _restarted(self) -> list[tuple[Stage, Outcome]]:
        """Start Ray again, and all stages that were set aside; return them as ended if Ray was lost too often."""
        import ray

        waiting, self._waiting = self._waiting, []
        if self._stopping:
            return [(work.stage, Outcome("interrupted")) for work in waiting]
        if self._starts >= STARTS:
            lost = Outcome("world", f"Ray was lost {STARTS} times in a row (perhaps memory ran out: see min_rss)")
            return [(work.stage, lost) for work in waiting]
        self._starts += 1
        ray.shutdown()
        _connect()
        self._head, self._silent_since = self._head and _head(), None
        self._remote = ray.remote(max_retries=0)(_work)
        for work in waiting:
            self._begin(work)
        return []

    def stop(self) -> None:
        """Ask every running stage to save and end; one that has not started is cancelled."""
        import ray

        self._stopping = True
        for reference in self._active:
            with suppress(Exception):  # a Ray that was lost hears nothing; the stages end as interrupted
                ray.cancel(reference, force=False)

    def close(self) -> None:
        """Cancel running stages, and stop Ray if it was started for this search."""
        import ray

        for reference in self._active:
            with suppress(Exception):
                ray.cancel(reference, force=True)
        self._active.clear()
        if self._own:
            ray.shutdown()


def _lost(reason: str) -> Outcome:
    """Return the outcome of every stage if the cluster is lost."""
    where = os.environ.get(ADDRESS, "")
    lost = f"the Ray cluster{where and f' at {where}'} was lost ({reason})"
    return Outcome("world", f"{lost}. The same command continues, on another one or with executor=local, too.")


def _newest(stage: Stage) -> int:
    """Return the step of the newest state of a run; -1 if there is none or it is unknown."""
    with suppress(OSError, ValueError):
        if io.isdir(stage.folder):
            return Checkpointer(stage.folder).newest_state() or -1
    return -1


# ---- in a worker


def _work(stage: Stage, preload: Sequence[str], threads: int, folder: str) -> Outcome:
    """Train a stage on the main thread of a Ray worker, where signals and `ray.cancel` arrive."""
    from importlib import import_module

    with suppress(OSError):  # on another machine, paths are absolute or remote
        os.chdir(folder)
    import torch

    torch.set_num_threads(threads)
    for name in preload:
        import_module(name)
    from xdpx.config.user_modules import load_user_modules
    from xdpx.tuning.stages import train_to

    io.when_remote(load_user_modules)
    load_user_modules()
    return train_to(stage)
