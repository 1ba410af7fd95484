"""Import modules once, then fork a process for each requested Python program: see `warm_starts.py`.

As a script: `python warm_program.py CHANNEL MODULE ...`. It ends when the other side closes the channel.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any, NoReturn

STANDARD = 3
"""Standard input, output and error are sent with each request, in this order."""
SECONDS_UNTIL_ADOPTED = 60


def serve(channel: socket.socket) -> dict[str, Any]:
    """Fork for each request; return the request in the process that is to become the program.

    It forks twice: when the intermediate process has ended, the kernel reparents the program to the nearest ancestor
    that is a subreaper, which is the one that sent the request. That one waits for it as for any other child.
    """
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, STANDARD)
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
    for number, file in enumerate(files):
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
        text += channel.recv(size - len(text))
    return text


def become(request: dict[str, Any], made: dict[str, str]) -> None:
    """Make this process like a new interpreter, except for the imported modules.

    Args:
        request: what to become.
        made: variables that the modules have set, as they would have in a new interpreter.
    """
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["deaf"] else signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**made, **request["environment"]})
    os.chdir(request["folder"])
    tempfile.tempdir = None
    at_once = bool(request["unbuffered"] or os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=at_once)  # type: ignore[union-attr]
    sys.stderr.reconfigure(write_through=at_once)  # type: ignore[union-attr]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.orig_argv = [sys.executable, *request["words"]]


def run(kind: str, name: str, words: list[str]) -> None:
    """Run a module (`-m`) or a Python file as the main program, with `words` as its arguments."""
    sys.argv = [name, *words]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-m":
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.path.insert(0, str(Path(name).resolve().parent))
    file = os.path.abspath(name)
    vars(main).update(__file__=file, __cached__=None)
    exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(main))


def end_after(error: BaseException) -> NoReturn:
    """Print an error as the interpreter does, without the frames of this file, and exit with its code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    sys.exit(1)


def start_from(channel: socket.socket, request: dict[str, Any]) -> None:
    """Make the programs that this one starts fork off the process at the other end."""
    place = importlib.util.spec_from_file_location("tests_warm_starts", Path(__file__).with_name("warm_starts.py"))
    assert place
    assert place.loader
    starts = sys.modules["tests_warm_starts"] = importlib.util.module_from_spec(place)
    place.loader.exec_module(starts)
    starts.install(starts.Warm(channel, request["like"]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.path[0]
    asked = socket.socket(fileno=int(sys.argv[1]))
    given = dict(os.environ)
    gc.disable()  # what is imported stays: collecting meanwhile takes a sixth of the time
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.enable()
    set_by_modules = {name: text for name, text in os.environ.items() if given.get(name) != text}
    gc.collect()
    gc.freeze()  # otherwise each collection in a program would copy its memory
    asked.sendall(b"!")
    while True:
        wanted = serve(asked)
        become(wanted, set_by_modules)
        if not wanted["launches"]:
            break
        mine, asked = socket.socketpair()
        if os.fork():  # the launcher; a copy of it continues here, and what the launcher starts is forked off that
            asked.close()
            start_from(mine, wanted)
            break
        mine.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in range(STANDARD):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    try:
        run(wanted["kind"], wanted["name"], wanted["rest"])
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        end_after(error)
