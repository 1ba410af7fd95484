"""Run several processes together on this machine: start them, end all at the first failure, optionally restart."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from typing import Any, NamedTuple

from xdpx.training import watching
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import io
from xdpx.utils.distributed_utils import LAUNCH, LOST_PEER_CODE
from xdpx.utils.process_facts import send_signal
from xdpx.utils.redaction import redact

SECONDS_TO_END = 10.0
"""Time for the others to end by themselves after one has failed; they notice as soon as they wait for it."""

PORTS = range(20_000, 32_000)
"""Below the ephemeral ports of the system, which an outgoing connection may take before the process listens."""


RESTARTS = "XDPX_RESTARTS"
"""Environment variable of each process: the number of restarts so far."""

IN_SERVER = "xdpx.launch.fork_server"
"""What a fork server imports first, so that it outlives SIGTERM."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Thread counts that numerical libraries read when they are imported."""


@dataclass(frozen=True)
class Restarts:
    """How to restart processes after one was killed, or after they ended because one was dead, frozen or hung.

    Any other failure is final: an error in the config or on the disk would only recur.

    Attributes:
        most: largest number of restarts.
        args: arguments of `work` from the first restart on; None for the original ones.
        preload: modules imported once by a fork server, from which the processes are forked, so that they start fast.
        threads: of numerical libraries in each process, set before they are imported; None leaves them alone.
    """

    most: int = 0
    args: tuple[Any, ...] | None = None
    preload: Sequence[str] = ()
    threads: int | None = None


def run_together(count: int, work: Callable[..., Any], *args: Any, restarts: Restarts = Restarts()) -> int:
    """Run the same work in `count` processes, which find each other by `env://`; return their exit code.

    The first process has the console. The standard error of another one is shown only if it failed first. Signals
    are passed on to all of them.

    Args:
        count: number of processes.
        work: a module-level function, called in each process; it ends with `sys.exit`.
        args: its arguments.
        restarts: whether and how to start them again after a crash.

    Returns:
        0 if all of them succeeded; 85 if they were interrupted and saved; else the exit code of the first that failed,
        after which the others were ended.
    """
    launch = secrets.token_hex(16) if restarts.most else ""
    for life in range(restarts.most + 1):
        if life and restarts.args is not None:
            args = restarts.args
        ended = _live(count, work, args, {LAUNCH: launch, RESTARTS: str(life)}, restarts)
        if not ended.again or life == restarts.most:
            break
        sys.stderr.write(f"all are started again ({life + 1} of {restarts.most} times).\n")
    return ended.code


class _Ended(NamedTuple):
    """The exit code of all processes after one start, and whether a restart may help."""

    code: int
    again: bool = False


def _live(
    count: int, work: Callable[..., Any], args: tuple[Any, ...], told: Mapping[str, str], restarts: Restarts
) -> _Ended:
    """Start all processes once, with the environment variables `told`, and wait until they end."""
    with tempfile.TemporaryDirectory() as folder:
        processes = _Processes([io.join(folder, f"{rank}.txt") for rank in range(count)], told, restarts)
        # Python allows signal handlers in the main thread only; elsewhere the caller handles signals.
        listens = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if listens else ()
        before = {number: signal.signal(number, processes.pass_on) for number in numbers}
        try:
            processes.start(work, args)
            return processes.wait()
        finally:
            processes.kill()
            for number, handler in before.items():
                signal.signal(number, handler)


class _Processes:
    """The processes of one `run_together`, by rank.

    Args:
        words: path for the standard error of each; unused for the first.
        told: environment variables of all of them.
    """

    def __init__(self, words: list[str], told: Mapping[str, str], restarts: Restarts) -> None:
        self._words, self._told, self._restarts = words, told, restarts
        self._all: list[SpawnProcess | ForkServerProcess] = []
        self._signal: int | None = None

    def start(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        context, port = _context(self._restarts), str(_free_port())
        for rank, words in enumerate(self._words):
            around = {**_environment(rank, len(self._words), port), **self._told}
            process = context.Process(target=_begin, args=(around, words if rank else None, work, args))
            process.start()
            self._all.append(process)
            if self._signal is not None:  # arrived while this one was being started
                send_signal(process, self._signal)

    def wait(self) -> _Ended:
        """Wait for all of them; return the exit code of the first that failed, after which the rest get 10 seconds."""
        failed: list[int] = []  # ranks, in the order of failure
        end = float("inf")
        while True:
            # Read before the exit codes: a process that ends in between is waited for once more, so none is overlooked.
            running = [process for process in self._all if process.exitcode is None]
            ended = [rank for rank, process in enumerate(self._all) if process.exitcode not in {None, 0, EXIT_CODE}]
            # Of those that failed at once, a killed one is the cause, so it comes first.
            new = (rank for rank in ended if rank not in failed)
            failed += sorted(new, key=lambda rank: (self._all[rank].exitcode or 0) >= 0)
            if failed:
                end = min(end, time.monotonic() + SECONDS_TO_END)
            if not running or time.monotonic() > end:
                break
            wait([process.sentinel for process in running], timeout=1.0)
        self.kill()
        return self._verdict(failed) if failed else _Ended(max(process.exitcode or 0 for process in self._all))

    def kill(self) -> None:
        """Kill the processes that are still running."""
        for process in self._all:
            process.kill()
            process.join()

    def pass_on(self, number: int, frame: object) -> None:
        """Signal handler: send the signal to all processes; each saves what it can and ends by itself."""
        self._signal = number
        for process in self._all:
            send_signal(process, number)

    def _verdict(self, failed: list[int]) -> _Ended:
        """Return the exit code of the first process that failed by itself; print its standard error if unseen."""
        codes = [process.exitcode or 0 for process in self._all]
        first = next((rank for rank in failed if codes[rank] != LOST_PEER_CODE), failed[0])
        code = codes[first]
        killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
        if first or killed:
            sys.stderr.write(redact(f"process {first} of {len(codes)} {killed or 'failed'}:\n{self._said(first)}\n"))
        again = self._signal is None and (code < 0 or code in {LOST_PEER_CODE, watching.EXIT_CODE})
        return _Ended(code if code > 0 else 128 - code, again)

    def _said(self, rank: int) -> str:
        """Return the standard error of a process; '' for the first, or if it was killed before writing."""
        if not io.isfile(self._words[rank]):
            return ""
        with io.open(self._words[rank], encoding="utf-8", errors="replace") as file:
            return str(file.read()).strip()


def _context(restarts: Restarts) -> SpawnContext | ForkServerContext:
    """Return the multiprocessing context: spawn, or a fork server that has imported the modules to preload."""
    if not restarts.preload:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([IN_SERVER, *restarts.preload])
    with _few_threads(restarts.threads):
        forkserver.ensure_running()
    return context


@contextmanager
def _few_threads(threads: int | None) -> Generator[None]:
    """Limit the threads of processes started inside the `with` block, unless the environment sets them already."""
    names = [name for name in THREADS if threads is not None and name not in os.environ]
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def _environment(rank: int, count: int, port: str) -> dict[str, str]:
    numbers = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0}
    return {**{name: str(value) for name, value in numbers.items()}, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def _begin(around: Mapping[str, str], words: str | None, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Set up the environment and output of this process, then call the work."""
    os.environ.update(around)
    gc.freeze()  # excludes imported modules from collection, which would copy shared pages
    if words is not None:
        for path, number in ((os.devnull, 1), (words, 2)):
            with io.open(path, "wb") as file:
                os.dup2(file.fileno(), number)
    work(*args)


def _free_port() -> int:
    """Return a local port on which nothing listens."""
    drawn = random.SystemRandom()
    while True:
        port = drawn.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
