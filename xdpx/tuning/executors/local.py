"""Stages in processes of this machine, forked from a server process that has torch and our modules imported."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from xdpx.config.builtin_names import device_count
from xdpx.config.user_modules import load_user_modules
from xdpx.logger import log
from xdpx.tuning.parameters import TuneParameters
from xdpx.tuning.stages import Outcome, Stage, train_to
from xdpx.utils import io
from xdpx.utils.memory import available_memory

GIGABYTE = 1 << 30
START = "forkserver"
"""How processes are started; `fork` serves tests, whose own process has imported everything."""
SECONDS_TO_SAVE = 20.0
"""How long a process may take to save and end once its driver is gone; then it is killed."""
TRIES = 2
"""Starts of a stage whose process is killed from outside, each resuming the run; then its trial has failed."""
UNKNOWN_CODE = 255
"""The exit code of a process that nobody reports, because the fork server was killed."""
SECONDS_TO_END = 0.2
"""Seconds until a killed process counts as ended."""


def make(needs: TuneParameters, *, stage: Stage, preload: Sequence[str], output: str) -> LocalExecutor:
    """Return an executor for as many runs at a time as the config allows and this machine has resources for."""
    devices = gpus_for(stage)
    each = max(1, int(stage.run.values.get("nproc") or 1))
    groups = [devices[first : first + each] for first in range(0, len(devices) - each + 1, each)]
    capacity = room(needs, processors=os.cpu_count() or 1, gpu_groups=len(groups) if devices else None)
    return LocalExecutor(capacity, gpus=groups, preload=preload, output=output)


def room(needs: TuneParameters, *, processors: int, gpu_groups: int | None) -> int:
    """Return how many runs can be trained at a time.

    Args:
        needs: the settings of the search.
        processors: number of processors, which limits runs on the CPU.
        gpu_groups: number of runs that the GPUs suffice for; None if runs use no GPU.
    """
    memory = available_memory() / GIGABYTE if needs.available_rss is None else needs.available_rss
    devices = processors if gpu_groups is None else gpu_groups
    return max(1, min(needs.parallel_runs, int(memory // needs.min_rss), devices))


def gpus_for(stage: Stage) -> list[str]:
    """Return the GPUs to distribute, as numbers or names for CUDA_VISIBLE_DEVICES; [] for runs on CPUs."""
    values = stage.run.values
    if values.get("cuda") is False or values.get("engine") == "spmd" or values.get("device_id", "auto") != "auto":
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    return [str(index) for index in range(device_count())]


@dataclass
class _Work:
    """A running stage."""

    stage: Stage
    gpus: list[str] | None
    tries: int = 1
    process: BaseProcess = field(init=False)
    answers: Connection = field(init=False)


class LocalExecutor:
    """Trains up to `capacity` stages at a time, each in a process.

    Args:
        capacity: number of stages.
        gpus: groups of GPUs, one for each run; empty for runs on the CPU.
        preload: modules that the fork server imports.
        output: folder for what the processes write to their consoles.
    """

    def __init__(
        self, capacity: int, *, gpus: Sequence[list[str]] = (), preload: Sequence[str] = (), output: str = ""
    ) -> None:
        self.capacity = capacity
        self._free_gpus = list(gpus)
        self._output = output
        self._active: list[_Work] = []
        self._stopping = False
        self._context: Any = multiprocessing.get_context(START)
        self._context.set_forkserver_preload(list(preload))

    def start(self, stage: Stage) -> None:
        """Start a stage in a new process."""
        self._begin(_Work(stage, self._free_gpus.pop(0) if self._free_gpus else None))

    def _begin(self, work: _Work) -> None:
        work.answers, there = self._context.Pipe(duplex=False)
        threads = max(1, (os.cpu_count() or 1) // self.capacity)
        arguments = (work.stage, there, work.gpus, threads, self._output)
        work.process = self._context.Process(target=_work, args=arguments, name=work.stage.name)
        with _as_library():
            try:
                work.process.start()
            except (EOFError, ConnectionError):  # the process from which others are forked was killed
                log.warning(f"{work.stage.name}: the process that starts runs was killed; another one is started.")
                time.sleep(SECONDS_TO_END)
                work.process.start()
        there.close()
        self._active.append(work)

    def wait(self, seconds: float) -> list[tuple[Stage, Outcome]]:
        """Return the stages that have ended; one whose process was killed from outside is started once more."""
        wait([work.process.sentinel for work in self._active], timeout=seconds)
        ended = []
        for work in [work for work in self._active if not work.process.is_alive()]:
            self._active.remove(work)
            outcome = _outcome(work)
            killed = outcome is None and ((work.process.exitcode or 0) < 0 or work.process.exitcode == UNKNOWN_CODE)
            if killed and not self._stopping and work.tries < TRIES:
                log.warning(f"{work.stage.name}: its process {_how(work)}; it is started again.")
                work.tries += 1
                self._begin(work)
                continue
            if work.gpus is not None:
                self._free_gpus.append(work.gpus)
            ended.append((work.stage, outcome or self._lost(work, killed=killed)))
        return ended

    def _lost(self, work: _Work, *, killed: bool) -> Outcome:
        """Return the outcome of a process that ended without reporting one."""
        if self._stopping:
            return Outcome("interrupted")
        if killed:
            return Outcome("failed", f"its process {_how(work)}, {work.tries} times")
        return Outcome("world", f"its process {_how(work)}; see {io.join(self._output, work.stage.name)}.txt.")

    def stop(self) -> None:
        """Ask every process to save and end."""
        self._stopping = True
        for work in self._active:
            work.process.terminate()

    def close(self) -> None:
        """Kill the processes that are still running."""
        for work in self._active:
            work.process.kill()
            work.process.join()
        self._active.clear()


def _outcome(work: _Work) -> Outcome | None:
    """Return the outcome that a process reported; None if it was killed before it could."""
    work.process.join()
    try:
        found: Outcome = work.answers.recv()
    except (EOFError, OSError):
        return None
    finally:
        work.answers.close()
    return found


def _how(work: _Work) -> str:
    code = work.process.exitcode or 0
    if code == UNKNOWN_CODE:
        return "has died, and so has the one that started it (perhaps memory ran out: see min_rss)"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (" (perhaps memory ran out: see min_rss)" if name == "SIGKILL" else "")


@contextmanager
def _as_library() -> Generator[None]:
    """Make processes started inside the block find the same modules, but not import the user's program.

    Importing it would start the search again there. PYTHONPATH is set because a fork server does not get `sys.path`.
    """
    main, paths = sys.modules["__main__"], os.environ.get("PYTHONPATH")
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.environ.pop("PYTHONPATH")
        if paths is not None:
            os.environ["PYTHONPATH"] = paths


# ---- in the process


def _work(stage: Stage, answers: Connection, gpus: list[str] | None, threads: int, output: str) -> None:
    """Train a stage, and send its outcome to the driver; the main function of a process."""
    gc.freeze()  # excludes imported modules from collection, which would copy shared pages
    os.setpgrp()  # the terminal's Ctrl-C reaches the driver alone, which passes it on once
    _end_with_driver()
    _write_to(io.join(output, f"{stage.name}.txt") if output and io.islocal(output) else os.devnull)
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    import torch

    torch.set_num_threads(threads)
    try:
        io.when_remote(load_user_modules)
        load_user_modules()
        outcome = train_to(stage)
    except BaseException as error:
        outcome = Outcome("world", f"{type(error).__name__}: {error}")
    with suppress(OSError):
        answers.send(outcome)
    answers.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skips the exit handlers of libraries, which are useless here and take as long as some stages


def _end_with_driver() -> None:
    """If the driver is gone (kill -9), save and end like a preempted run; if that takes too long, exit at once."""
    driver = multiprocessing.parent_process()

    def watch() -> None:
        if driver is not None:
            driver.join()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SECONDS_TO_SAVE)
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="watch-driver").start()


def _write_to(path: str) -> None:
    """Append everything this process writes to its console to a file."""
    with io.open(path, "ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
