"""Import modules once, then fork a process for each requested Python program: see `warm_starts.py`.

As a script: `python warm_program.py CHANNEL`; the first message is the list of modules. It ends when the other side
closes the channel.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import gc
import importlib.util
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any, NoReturn

MOST_FILES = 64
"""Most files that are sent with a request, first standard input, output and error."""
ABOVE = 500
"""Files are moved above this number before each gets its own."""
SECONDS_UNTIL_ADOPTED = 60


def serve(channel: socket.socket) -> dict[str, Any]:
    """Fork for each request; return the request in the process that is to become the program.

    It forks twice: when the intermediate process has ended, the kernel reparents the program to the nearest ancestor
    that is a subreaper, which is the one that sent the request. That one waits for it as for any other child.
    """
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, MOST_FILES)
        if not head:
            os._exit(0)
        request = json.loads(_exactly(channel, int.from_bytes(head, "big")))
        between = os.fork()
        if not between:
            program = os.fork()
            if not program:
                break
            channel.sendall(program.to_bytes(8, "big"))
            os._exit(0)
        os.waitpid(between, 0)
        channel.sendall(b"!")
        for file in files:
            os.close(file)
    channel.close()
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, ABOVE) for file in files]
    for file in files:
        os.close(file)
    for number, file in zip(request["files"], moved, strict=True):
        os.dup2(file, number)
        os.close(file)
    end = time.monotonic() + SECONDS_UNTIL_ADOPTED
    while os.getppid() != request["parent"]:
        if time.monotonic() > end:
            os._exit(70)
        time.sleep(0.0005)
    return dict(request)


def _exactly(channel: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        more = channel.recv(size - len(text))
        if not more:
            os._exit(0)  # the other side has ended
        text += more
    return text


def become(request: dict[str, Any], made: dict[str, str], paths: list[str]) -> None:
    """Make this process like a new interpreter, except for the imported modules.

    Args:
        request: what to become.
        made: variables that the modules have set, as they would have in a new interpreter.
        paths: where a new interpreter looks for modules, without PYTHONPATH.
    """
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["deaf"] else signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**made, **request["environment"]})
    os.chdir(request["folder"])
    tempfile.tempdir = None
    own = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, own), *paths])
    sys.warnoptions = [*filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")), *request["warnings"]]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    at_once = bool(request["unbuffered"] or os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=at_once)  # type: ignore[union-attr]
    sys.stderr.reconfigure(write_through=at_once)  # type: ignore[union-attr]
    if "jax" in sys.modules:
        little = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0") == "1"
        sys.modules["jax"].config.update("jax_disable_most_optimizations", little)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.orig_argv = [sys.executable, *request["words"]]


def run(kind: str, name: str, words: list[str]) -> None:
    """Run a module (`-m`), code (`-c`) or a Python file as the main program, with `words` as its arguments."""
    sys.argv = ["-c" if kind == "-c" else name, *words]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        sys.path.insert(0, "")
        exec(compile(name, "<string>", "exec", dont_inherit=True), vars(main))
        return
    if kind == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.modules.pop(name, None)  # as in a new interpreter, it is only __main__
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.path.insert(0, str(Path(name).resolve().parent))
    file = os.path.abspath(name)
    vars(main).update(__file__=file, __cached__=None)
    exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(main))


def show(error: BaseException) -> None:
    """Print an error as the interpreter does, without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def code_of(leaving: SystemExit) -> int:
    """Return the exit code of a program that leaves, and print what it gave instead of one."""
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def end(code: int) -> NoReturn:
    """End as the interpreter does, except for destroying all modules, which takes a third of a second for torch."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code & 0xFF)


def start_from(channel: socket.socket, request: dict[str, Any]) -> None:
    """Make the programs that this one starts fork off the process at the other end."""
    place = importlib.util.spec_from_file_location("tests_warm_starts", Path(__file__).with_name("warm_starts.py"))
    assert place
    assert place.loader
    starts = sys.modules["tests_warm_starts"] = importlib.util.module_from_spec(place)
    place.loader.exec_module(starts)
    starts.install(starts.Warm(channel, request["like"], fixed=True))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.path[0]
    asked = socket.socket(fileno=int(sys.argv[1]))
    given = dict(os.environ)
    paths_given = set(map(os.path.abspath, filter(None, given.get("PYTHONPATH", "").split(os.pathsep))))
    without_given = [path for path in sys.path if path not in paths_given]
    gc.disable()  # what is imported stays: collecting meanwhile takes a sixth of the time
    modules = json.loads(_exactly(asked, int.from_bytes(_exactly(asked, 4), "big")))
    for module in modules:
        with contextlib.suppress(ImportError):  # a program that needs it will say so
            importlib.import_module(module)
    gc.enable()
    set_by_modules = {name: text for name, text in os.environ.items() if given.get(name) != text}
    gc.collect()
    gc.freeze()  # otherwise each collection in a program would copy its memory
    asked.sendall(b"!")
    while True:
        wanted = serve(asked)
        become(wanted, set_by_modules, without_given)
        if not (wanted["launches"] or wanted["runs_tests"]):
            break
        mine, asked = socket.socketpair()
        if os.fork():  # the launcher; a copy of it continues here, and what the launcher starts is forked off that
            asked.close()
            if wanted["launches"]:
                start_from(mine, wanted)
            else:
                os.environ["XDPX_TESTS_CHANNEL"] = json.dumps([mine.detach(), modules])
            break
        mine.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    code = 0
    try:
        run(wanted["kind"], wanted["name"], wanted["rest"])
    except SystemExit as leaving:
        code = code_of(leaving)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        show(error)
        code = 1
    end(code)
