"""One run, performed in this process or as the only work of a subprocess."""

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
from xdpx.config.faults import THIS_RUN, ConfigError
from xdpx.config.loading import Run, resolve
from xdpx.config.user_modules import load_user_modules
from xdpx.launch.local import THREADS, Restarts, run_together
from xdpx.runs.imports import modules_of
from xdpx.utils import collecting, io
from xdpx.utils.local_files import NAMELESS

GO_ON = {"resume": "auto", "overwrite": False}
"""Values for a run that is restarted: it resumes from its newest complete state."""

OUTPUTS = {"x-prepro": "data_dir", "x-train": "save_dir"}
"""For each command, the key that names its output folder."""


def perform(run: Run) -> int:
    """Build the command of a run and perform it. Return its exit code; most commands return None, which means 0."""
    try:
        if run.awaits:
            check_again(run)
        return run.picked("command")(replace(run, awaits=False)).run() or 0
    except ConfigError as error:
        raise error.placed(run.source, run.origins) from error.__cause__
    except OSError as error:
        if error.errno in NAMELESS and error.filename is None:
            error.filename = run.values.get(OUTPUTS.get(run.command, ""))
        raise


def check_again(run: Run) -> None:
    """Check the files of a run that earlier runs of its config have written by now.

    Raises:
        ConfigError: with the faults.
    """
    checked = resolve(run.values, run.command, source=THIS_RUN, strict=False)
    check = getattr(run.picked("command")(checked), "check", None)
    faults = check() if check else []
    if faults:
        raise ConfigError(THIS_RUN, faults)


def run_in_processes(run: Run, count: int) -> int:
    """Perform one run in `count` processes of this machine, and return its exit code."""
    threads = threads_of_each(count)
    most = int(run.values.get("max_restarts") or 0) if not run.values.get("auto_suffix") else 0
    again = replace(run, values={**run.values, **GO_ON})
    restarts = Restarts(most, (again, "", threads, False), modules_of(run) if most else (), threads)
    return run_together(count, main, run, "", threads, False, restarts=restarts)


def main(run: Run, prefix: str, threads: int | None, verbose: bool) -> None:
    """Perform one run as the main function of a subprocess, and exit with its exit code.

    Args:
        run: the run.
        prefix: put before every line of output, for when several runs write at the same time.
        threads: how many threads numerical libraries may use; None leaves the environment unchanged.
        verbose: whether to show the traceback of every error.
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
    """Set up this subprocess: own process group, end with its parent, number of threads.

    Args:
        threads: how many threads numerical libraries may use; None leaves the environment unchanged.
    """
    collecting.rarely()
    os.setpgrp()  # Ctrl-C in the terminal then reaches the parent only, which forwards it once
    _end_with_parent()
    if threads is not None:  # before the import of torch, which reads these variables
        for variable in THREADS:
            os.environ.setdefault(variable, str(threads))


def threads_of_each(count: int) -> int:
    """Return how many threads of numerical libraries each of `count` processes of this machine may use."""
    return max(1, (os.cpu_count() or 1) // count)


def _load_and_perform(run: Run) -> int:
    io.when_remote(load_user_modules)  # users' modules may set credentials
    if run.command not in LOOKING_ON:
        load_user_modules()
    return perform(run)


def _end_with_parent() -> None:
    """If the parent dies (kill -9), send this process SIGTERM, so that it saves and ends as a preempted one does."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()


class _Prefixed(TextIOBase):
    """A text stream that prefixes every line and reports that it is not a terminal, so no progress bars are drawn."""

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
        """The underlying binary stream, without prefixes: output written there is for programs."""
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
        """Write an unfinished last line."""
        if self._rest:
            self.write("\n")
        self.flush()
