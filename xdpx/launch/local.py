"""Several processes of this machine that do one thing together: started, ended with the first failure, begun again."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
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
from xdpx.utils.distributed_utils import LOST_PEER_CODE
from xdpx.utils.redaction import redact

SECONDS_TO_END = 10.0
"""How long the others may take to end by themselves when one has failed: they notice as soon as they wait for it."""

PORTS = range(20_000, 32_000)
"""Below those that the system gives to connections by itself: such a one may be taken before anybody listens."""


RESTARTS = "XDPX_RESTARTS"
"""How often the processes were started again before, in the environment of each."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What numerical libraries read when they are imported."""


@dataclass(frozen=True)
class Restarts:
    """Whether processes that were killed, or ended because one was dead, frozen or hung, are started again.

    No other end is followed by another life: an error of the config or of the disk would only come again.

    Attributes:
        most: how often at most.
        args: what `work` is called with from the second life on; None for the same as at first.
        preload: modules that a process which begins all others imports once, so that a life begins at once.
        threads: of numerical libraries in each process, which must be known before they are imported; None leaves it.
    """

    most: int = 0
    args: tuple[Any, ...] | None = None
    preload: Sequence[str] = ()
    threads: int | None = None


def run_together(count: int, work: Callable[..., Any], *args: Any, restarts: Restarts = Restarts()) -> int:
    """Do the same work in so many processes, which find each other by `env://`; return their exit code.

    The first process has the console. What another one says is shown when it is the one that failed first. Signals
    are passed on to all of them.

    Args:
        count: number of processes.
        work: a function of a module, called in each; it leaves with `sys.exit`.
        args: what it is called with.
        restarts: whether they are started again after some of them were killed.

    Returns:
        0 when all of them ended well; 85 when a signal interrupted them and all have saved what they could; else the
        exit code of the first that failed, whose end was the end of all.
    """
    for life in range(restarts.most + 1):
        if life and restarts.args is not None:
            args = restarts.args
        ended = _live(count, work, args, life, restarts)
        if not ended.again or life == restarts.most:
            break
        sys.stderr.write(f"all are started again ({life + 1} of {restarts.most} times).\n")
    return ended.code


class _Ended(NamedTuple):
    """The exit code of a life, and whether another one could do better."""

    code: int
    again: bool = False


def _live(count: int, work: Callable[..., Any], args: tuple[Any, ...], life: int, restarts: Restarts) -> _Ended:
    """Start all processes once, and wait for their end."""
    with tempfile.TemporaryDirectory() as folder:
        processes = _Processes([io.join(folder, f"{rank}.txt") for rank in range(count)], life, restarts)
        # Python lets the main thread alone listen; in another one, whoever owns the process decides.
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
        words: file of each, for what it says on standard error; that of the first stays empty.
    """

    def __init__(self, words: list[str], life: int, restarts: Restarts) -> None:
        self._words, self._life, self._restarts = words, life, restarts
        self._all: list[SpawnProcess | ForkServerProcess] = []
        self._signal: int | None = None

    def start(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        context, port = _context(self._restarts), str(_free_port())
        for rank, words in enumerate(self._words):
            around = {**_environment(rank, len(self._words), port), RESTARTS: str(self._life)}
            process = context.Process(target=_begin, args=(around, words if rank else None, work, args))
            process.start()
            self._all.append(process)
            if self._signal is not None:  # it came while this one was being started
                _send(process, self._signal)

    def wait(self) -> _Ended:
        """Wait for all of them, and return the exit code of the first that failed."""
        failed: list[int] = []  # ranks, in the order in which they did
        end = float("inf")
        while running := [process for process in self._all if process.exitcode is None]:
            wait([process.sentinel for process in running], timeout=1.0)
            ended = [rank for rank, process in enumerate(self._all) if process.exitcode not in {None, 0, EXIT_CODE}]
            # Of those found at once, one that was killed is why the others failed.
            new = (rank for rank in ended if rank not in failed)
            failed += sorted(new, key=lambda rank: (self._all[rank].exitcode or 0) >= 0)
            if failed:
                end = min(end, time.monotonic() + SECONDS_TO_END)
            if time.monotonic() > end:
                self.kill()
        return self._verdict(failed) if failed else _Ended(max(process.exitcode or 0 for process in self._all))

    def kill(self) -> None:
        """End at once what has not ended yet."""
        for process in self._all:
            process.kill()
            process.join()

    def pass_on(self, number: int, frame: object) -> None:
        """Send a signal to all of them; each saves what it can and ends by itself."""
        self._signal = number
        for process in self._all:
            _send(process, number)

    def _verdict(self, failed: list[int]) -> _Ended:
        """Return the exit code of the first process that failed by itself, and show what nobody has seen of it yet."""
        codes = [process.exitcode or 0 for process in self._all]
        first = next((rank for rank in failed if codes[rank] != LOST_PEER_CODE), failed[0])
        code = codes[first]
        killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
        if first or killed:
            sys.stderr.write(redact(f"process {first} of {len(codes)} {killed or 'failed'}:\n{self._said(first)}\n"))
        again = self._signal is None and (code < 0 or code in {LOST_PEER_CODE, watching.EXIT_CODE})
        return _Ended(code if code > 0 else 128 - code, again)

    def _said(self, rank: int) -> str:
        """Return what a process other than the first said; it may have been killed before it said anything."""
        if not io.isfile(self._words[rank]):
            return ""
        with io.open(self._words[rank], encoding="utf-8", errors="replace") as file:
            return str(file.read()).strip()


def _send(process: SpawnProcess | ForkServerProcess, number: int) -> None:
    if process.pid and process.is_alive():
        os.kill(process.pid, number)


def _context(restarts: Restarts) -> SpawnContext | ForkServerContext:
    """Return what starts processes: anew, or as copies of one that has imported what they need."""
    if not restarts.preload:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(restarts.preload))
    with _few_threads(restarts.threads):
        forkserver.ensure_running()
    return context


@contextmanager
def _few_threads(threads: int | None) -> Generator[None]:
    """Let a process that is started inside use so many threads, where nobody has said how many."""
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
    """Become a process of the launch, then do the work."""
    os.environ.update(around)
    gc.freeze()  # what was imported before the fork stays for good: to walk through it would copy its memory
    if words is not None:
        for path, number in ((os.devnull, 1), (words, 2)):
            with io.open(path, "wb") as file:
                os.dup2(file.fileno(), number)
    work(*args)


def _free_port() -> int:
    """Return a port on which nothing listens."""
    drawn = random.SystemRandom()
    while True:
        port = drawn.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
