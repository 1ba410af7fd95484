"""Real processes that tests start together: a port that nothing else takes, and an end for all when one has failed."""

from __future__ import annotations

import contextlib
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

ROOT = Path(__file__).parents[1]
PORTS = range(20_000, 32_000)
"""Below those that the system gives to connections by itself (from 32,768 on): a port that it gave once, for `bind` to
0, may be given to anybody's connection before the process it was meant for listens. One of two nodes then failed at
once, and the other waited for it until the test's time was over."""
SECONDS_LEFT_ALONE = 60
"""How long a process may go on after another one has failed: enough for an end by itself, with its own error."""


class Ended(NamedTuple):
    """How a process ended: its exit code, that of SIGABRT when it took too long, and all that it wrote."""

    code: int
    text: str


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
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
    """Return this environment, with one thread for each process, and with the package and the tests to import."""
    usual = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"}
    return {**os.environ, **usual, "PYTHONFAULTHANDLER": "1", **more}


def run_together(
    lines: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]], *, seconds: float = 480
) -> list[Ended]:
    """Run command lines at the same time, each in its environment, and return how each ended.

    What they write goes into files: a pipe that nobody reads stops the process that writes, and those that wait for it.
    One that takes longer than `seconds`, on a machine with ten times as much to do, writes its stacks at last.
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
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        process.kill()
        process.wait()


def fork_ranks(work: Callable[[int], object], size: int, words: str) -> list[int]:
    """Do `work(rank)` in so many processes forked off this one, a world as torchrun makes it; return the exit codes.

    What this one has imported they need not import. When one has failed, the others are told to end, as by torchrun.

    Args:
        work: what each of them does.
        size: how many.
        words: what they write goes into the files `<words>-<rank>.txt`.
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
        for child, status in ended:  # these alone: what else this process has started is not ours to wait for
            codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
        for other in running if ended and any(codes) else ():
            os.kill(other, signal.SIGTERM)
        time.sleep(0 if ended else 0.01)
    return codes


def fork(work: Callable[[], int | None], words: Path | str) -> int:
    """Do `work` in a process forked off this one, which writes into the file `words`; return its process id.

    It leaves with the code that `work` returns or exits with: 0 for None, 70 after an error.
    """
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        file = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
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
    """Return what all processes wrote at their ends, for the message of a test that failed.

    A process that is aborted lists its extension modules, in one line that is longer than all that would be shown.
    """
    texts = [re.sub(r"(?m)^Extension modules: .*\n?", "", each.text) for each in ended]
    return "\n----\n".join(f"exit code {each.code}\n{text[-8000:]}" for each, text in zip(ended, texts, strict=True))
