"""Map a function over many blocks in several processes: results in order, few blocks in memory, no hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from xdpx.config.user_modules import load_user_modules

Item = TypeVar("Item")
Result = TypeVar("Result")

FEW = 3
"""Number of blocks below which no processes are started, as that takes a second."""

AHEAD = 2
"""Number of blocks under way per process: one being processed and one queued."""


SECONDS_BETWEEN_LOOKS = 2.0
KILLED = "A worker process was killed, perhaps by lack of memory. Start again, if necessary with fewer `workers`."


class WorkerDied(OSError):
    """A worker process ended without returning its result, most often because the machine ran out of memory."""


class Crew(Generic[Item, Result]):
    """A pool of processes that all run `task`. With one worker, or few blocks, everything runs in this process.

    Processes are spawned, not forked: the caller may have threads (of torch, of a progress bar) that no fork survives.
    They start at the first `map` over enough blocks, and end with the crew, or with the caller, even if it is killed.
    """

    def __init__(self, task: Callable[[Item], Result], *, workers: int) -> None:
        self._task = task
        self._workers = min(workers, available_cores())
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Crew[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Yield the result of each item, in the order of the items.

        Raises:
            WorkerDied: a process was killed.
        """
        iterator = iter(items)
        first = list(islice(iterator, FEW)) if self._workers > 1 and self._pool is None else []
        items = chain(first, iterator)
        if self._workers <= 1 or (self._pool is None and len(first) < FEW):
            return map(self._task, items)
        return self._spread(items)

    def _spread(self, items: Iterable[Item]) -> Iterator[Result]:
        pool = self._pool = self._pool or self._start()
        under_way: deque[Future[Any]] = deque()
        try:
            for item in items:
                under_way.append(pool.submit(_work, item))
                if len(under_way) >= AHEAD * self._workers:
                    yield _result(under_way.popleft(), pool)
            while under_way:
                yield _result(under_way.popleft(), pool)
        except BrokenProcessPool as error:
            raise WorkerDied(KILLED) from error
        finally:
            for future in under_way:
                future.cancel()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(_UserModules(), self._task),
        )


def _result(future: Future[Result], pool: ProcessPoolExecutor) -> Result:
    """Wait for a result. Raises WorkerDied if the pool's manager thread has died, which the pool does not report."""
    while not wait_for([future], timeout=SECONDS_BETWEEN_LOOKS).done:
        thread = getattr(pool, "_executor_manager_thread", None)
        if isinstance(thread, threading.Thread) and not thread.is_alive() and not future.done():
            for process in pool._processes.values():  # they would wait for work forever, and Python's exit for them
                process.kill()
            raise WorkerDied(f"The work could not be distributed to worker processes. {KILLED}")
    return future.result()


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _UserModules:
    """Imports the user's modules when unpickled; comes before the task, which may be of a user's class."""

    def __reduce__(self) -> tuple[Callable[[], list[str]], tuple[()]]:
        return load_user_modules, ()


_task: Callable[[Any], Any]


def _begin(_modules: object, task: Callable[[Any], Any]) -> None:
    global _task
    _task = task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the caller handles it
    threading.Thread(target=_end_with_the_caller, daemon=True).start()


def _end_with_the_caller() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(item: object) -> Any:
    return _task(item)
