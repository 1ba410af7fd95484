"""Write the stack traces of all threads of a process, even when its interpreter is blocked."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import tempfile
import time
from datetime import UTC, datetime

from xdpx.utils import io

FOLDER = "stacks"
"""Subfolder of a run."""
SECONDS_TO_WRITE = 1.5
_SIGNAL = int(vars(signal).get("SIGRTMIN", 24)) + 7
"""The signal that asks for stacks: one that launchers, schedulers and accelerators do not send."""
_DEBUGGERS = frozenset({"pdb", "bdb", "pydevd", "debugpy", "ipdb"})


class Stacks:
    """Lets other processes ask for the stacks of this one, which are written to `path`. Call `close` when done."""

    def __init__(self) -> None:
        number, self.path = tempfile.mkstemp(prefix="xdpx-stacks-", suffix=".txt")
        os.close(number)
        self._file = io.open(self.path, "w", encoding="utf-8")
        # faulthandler works in C without the GIL, so it also answers when all threads are deadlocked.
        faulthandler.register(_SIGNAL, file=self._file, all_threads=True, chain=False)

    def close(self) -> None:
        """Stop answering, and remove the file."""
        faulthandler.unregister(_SIGNAL)
        self._file.close()
        io.remove(self.path)


def own() -> str:
    """Return the stacks of all threads of this process."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def of_frozen(pid: int, path: str) -> str:
    """Return the stacks of another process of this machine; a stopped process is continued (SIGCONT) to answer.

    Args:
        pid: its process id.
        path: of its `Stacks`.

    Raises:
        OSError: the process is gone, or belongs to another user.
    """
    # Sent to the main thread, which answers before it continues: another thread may take a signal to the process.
    ctypes.CDLL(None).tgkill(pid, pid, _SIGNAL)
    os.kill(pid, signal.SIGCONT)
    end, size = time.monotonic() + SECONDS_TO_WRITE, 0
    while time.monotonic() < end:
        time.sleep(0.05)
        before, size = size, os.path.getsize(path)
        if size and size == before:
            break
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return str(file.read())


def write(folder: str, rank: int, about: str, text: str, *, host: str = "") -> str:
    """Write stacks to a file of a run's folder, named by time and rank; return its path."""
    now = datetime.now(UTC)
    place = io.join(folder, FOLDER)
    io.makedirs(place, exist_ok=True)
    path = io.join(place, f"{now:%Y%m%dT%H%M%SZ}-rank-{rank}.txt")
    head = f"rank {rank} on {host or socket.gethostname()}, {now.isoformat(timespec='seconds')}\n{about}\n\n"
    with io.open(path, "w", encoding="utf-8") as file:
        file.write(head + text)
    return path


def in_debugger(thread: int) -> bool:
    """Return whether a thread is in a debugger, i.e. has a frame of one on its stack."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False
