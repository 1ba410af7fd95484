"""Real processes that tests start together: a port that nothing else takes, and an end for all when one has failed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
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


def told(ended: Sequence[Ended]) -> str:
    """Return what all processes wrote at their ends, for the message of a test that failed.

    A process that is aborted lists its extension modules, in one line that is longer than all that would be shown.
    """
    texts = [re.sub(r"(?m)^Extension modules: .*\n?", "", each.text) for each in ended]
    return "\n----\n".join(f"exit code {each.code}\n{text[-8000:]}" for each, text in zip(ended, texts, strict=True))
