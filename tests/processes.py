"""Start real processes together in tests: a free port for them, and an end for all when one has failed."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).parents[1]
PORTS = range(20_000, 32_000)
"""Below the ephemeral ports (from 32,768 on): a port that the system returned for a bind to 0 may be taken by any
connection before the intended process listens. One of two nodes then failed at once, and the other waited for it until
the test timed out."""
SECONDS_LEFT_ALONE = 60
"""Seconds a process may continue after another one has failed: enough to end by itself with its own error."""


class Ended(NamedTuple):
    """The end of a process: its exit code (that of SIGABRT after a timeout) and its output."""

    code: int
    text: str


def free_port() -> int:
    """Return a port of this machine that is not in use."""
    drawn = random.SystemRandom()
    while True:
        port = drawn.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


def environment(**more: str) -> dict[str, str]:
    """Return this environment with one thread per process, and with the package and tests importable."""
    usual = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"}
    return {**os.environ, **usual, "PYTHONFAULTHANDLER": "1", **more}


def run_together(
    lines: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]], *, seconds: float = 480
) -> list[Ended]:
    """Run command lines concurrently, each in its environment, and return how each ended.

    Output goes to files, since a full pipe would block the process that writes, and those that wait for it. A process
    that takes longer than `seconds`, which suffices even on a very busy machine, is ended with a dump of its stacks, as
    are those it has started: when a launcher waits, one of its processes has the reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(index)) for index in range(len(lines))]
        running = []
        for line, around, place in zip(lines, environments, places, strict=True):
            with place.open("wb") as file:
                running.append(subprocess.Popen(line, env=dict(around), stdout=file, stderr=subprocess.STDOUT))
        _wait(running, seconds)
        ended = zip(running, places, strict=True)
        return [Ended(process.returncode, place.read_text(errors="replace")) for process, place in ended]


def _wait(running: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in running) and time.monotonic() < end:
        if any(process.returncode for process in running):
            end = min(end, time.monotonic() + SECONDS_LEFT_ALONE)
        time.sleep(0.05)
    for process in running:
        if process.poll() is None:
            _abort(process)
        process.kill()
        process.wait()


def _abort(process: subprocess.Popen[bytes]) -> None:
    """Abort a process, and then those it has started: it would end by itself when they have ended."""
    started = list[psutil.Process]()
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for each in started:
        with contextlib.suppress(psutil.Error):
            each.send_signal(signal.SIGABRT)
    psutil.wait_procs(started, timeout=10)


def fork_ranks(work: Callable[[int], object], size: int, words: str) -> list[int]:
    """Run `work(rank)` in `size` forked processes, set up as a world by torchrun would be, and return the exit codes.

    They share the imports of this process. If one fails, the others are stopped, as by torchrun.

    Args:
        work: what each process runs.
        size: number of processes.
        words: prefix of their output files `<words>-<rank>.txt`.
    """
    world = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}

    def be(rank: int) -> None:
        numbers = {**world, "RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(number) for name, number in numbers.items()})
        work(rank)

    running = {fork(partial(be, rank), f"{words}-{rank}.txt"): rank for rank in range(size)}
    codes = [0] * size
    while running:
        ended = [(child, status) for child in running for found, status in [os.waitpid(child, os.WNOHANG)] if found]
        for child, status in ended:  # only these: other processes that this one started must not be reaped here
            codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
        for other in running if ended and any(codes) else ():
            os.kill(other, signal.SIGTERM)
        time.sleep(0 if ended else 0.01)
    return codes


def fork(work: Callable[[], int | None], words: Path | str) -> int:
    """Run `work` in a forked process that writes its output to the file `words`, and return its process id.

    Its exit code is the one that `work` returns or exits with; 0 for None, 70 after an error.
    """
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        file = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - pytest's are other files
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        faulthandler.disable()  # another library may have taken the signals since: enabled again, it takes them back
        faulthandler.enable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's handler is for the process of the tests
        code = work() or 0
    except SystemExit as leaving:
        if isinstance(leaving.code, int):
            code = leaving.code
        else:
            sys.stderr.write(f"{leaving}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def told(ended: Sequence[Ended]) -> str:
    """Return the end of each process's output, for the message of a failed test.

    The list of extension modules that an aborted process prints is removed: that line is longer than what is shown.
    """
    texts = [re.sub(r"(?m)^Extension modules: .*\n?", "", each.text) for each in ended]
    return "\n----\n".join(f"exit code {each.code}\n{text[-8000:]}" for each, text in zip(ended, texts, strict=True))
