"""One run, in this process or as the whole work of a fresh one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from io import TextIOBase
from multiprocessing import parent_process
from typing import BinaryIO, TextIO

from xdpx.commands.command_line import LOOKING_ON
from xdpx.commands.outcomes import exit_code
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run
from xdpx.config.user_modules import load_user_modules
from xdpx.launch.local import THREADS, Restarts, run_together
from xdpx.utils import io
from xdpx.utils.local_files import NAMELESS

GO_ON = {"resume": "auto", "overwrite": False}
"""Values of a run that is started again: it goes on from its newest whole state."""

PRELOADED = ("xdpx.runs.training", "xdpx.engines.pytorch.engine", "torch._dynamo", "xdpx.models.pytorch.bert")
"""What takes seconds to import, mostly within torch and transformers, and does nothing with a device."""

OUTPUTS = {"x-prepro": "data_dir", "x-train": "save_dir"}
"""The key that says where a command writes."""


def perform(run: Run) -> int:
    """Build the command of a run and do it. Returns its exit code; most commands give none, which is 0."""
    try:
        return run.picked("command")(run).run() or 0
    except ConfigError as error:
        raise error.placed(run.source, run.origins) from error.__cause__
    except OSError as error:
        if error.errno in NAMELESS and error.filename is None:
            error.filename = run.values.get(OUTPUTS.get(run.command, ""))
        raise


def run_in_processes(run: Run, count: int) -> int:
    """Do one run in so many processes of this machine, and return its exit code."""
    threads = threads_of_each(count)
    most = int(run.values.get("max_restarts") or 0) if not run.values.get("auto_suffix") else 0
    again = replace(run, values={**run.values, **GO_ON})
    restarts = Restarts(most, (again, "", threads, False), PRELOADED if most else (), threads)
    return run_together(count, main, run, "", threads, False, restarts=restarts)


def main(run: Run, prefix: str, threads: int | None, verbose: bool) -> None:
    """Do one run as a process of its own, and leave with its exit code.

    Args:
        run: what to do.
        prefix: put before every line of output, when several runs write at the same time.
        threads: how many threads numerical libraries may use; None leaves them alone.
        verbose: whether to show tracebacks of every error.
    """
    begin(threads)
    if prefix:
        sys.stdout, sys.stderr = _Prefixed(sys.stdout, prefix), _Prefixed(sys.stderr, prefix)
    code = exit_code(lambda: _load_and_perform(run), verbose=verbose)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Prefixed):
            stream.finish()
    sys.exit(code)


def begin(threads: int | None) -> None:
    """Set up this process, which another one has started to do a part of its work.

    Args:
        threads: how many threads numerical libraries may use; None leaves them alone.
    """
    os.setpgrp()  # the terminal's Ctrl-C reaches the parent alone, which passes it on once
    _end_with_parent()
    if threads is not None:  # before torch is imported, which reads these
        for variable in THREADS:
            os.environ.setdefault(variable, str(threads))


def threads_of_each(count: int) -> int:
    """Return how many threads of numerical libraries each of so many processes of this machine may use."""
    return max(1, (os.cpu_count() or 1) // count)


def _load_and_perform(run: Run) -> int:
    io.when_remote(load_user_modules)  # they may hold credentials
    if run.command not in LOOKING_ON:
        load_user_modules()
    return perform(run)


def _end_with_parent() -> None:
    """When the parent is gone (kill -9), ask this process to stop as a preempted one does: save, then end."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()


class _Prefixed(TextIOBase):
    """A text stream that begins every line with a prefix and is no terminal, so that nobody draws bars on it."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream
        self._prefix = prefix
        self._rest = ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only here, which is all that others need
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """The bytes below, without prefixes: what is written there is meant for a program."""
        return self._stream.buffer

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text.replace("\r", "\n")).split("\n")
            if lines:
                self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def finish(self) -> None:
        """Write what stands in an unfinished line."""
        if self._rest:
            self.write("\n")
        self.flush()
