"""Imported first, and only, by a fork server: it must outlive its processes, for it alone can tell how they ended.

Slurm, `ray job stop` and others send SIGTERM to every process of a job. A server that ended by it would leave processes
that are still saving, of which their parent thinks that all have ended with an unknown exit code.
"""

from __future__ import annotations

import os
import signal

SERVER = os.getpid()


def outlive(number: int, frame: object) -> None:
    """Signal handler: do nothing in the server, and end a process that was forked off it and has no handler yet."""
    if os.getpid() != SERVER:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


for name in ("SIGTERM", "SIGUSR1"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), outlive)
