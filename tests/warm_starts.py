"""Python programs that tests start are forked off a process that has imported what they need.

A new interpreter takes two seconds to import torch, and three for torch and transformers; a fork takes a tenth of a
second. The fork is a real process with its own exit code, session, folder, environment, streams and signals. It is a
child of the process that requested it, so `subprocess.Popen` waits for it and kills it as usual.

Programs differ in options and variables that are read when the interpreter starts or a library is imported
(`READ_AT_START`). Each such kind gets its own process to fork off, with its first program, unless that of another kind
differs only in having imported more. All programs that are forked off one share the hash seed, so those that must agree
for any seed need an explicit PYTHONHASHSEED. Code after `-c` that looks at what is imported is started normally, as are
all programs with `ANEW` in their environment.

The processes that pytest-xdist shares out the tests to are forked too, off one that has imported what all test files
import: where no byte code is there yet, as in a fresh clone, that takes half a minute. Each leaves a copy of itself
behind, in this state, off which most of the programs that its tests start are forked.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from multiprocessing import util
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SERVER = Path(__file__).with_name("warm_program.py")
ANEW = "XDPX_TESTS_START_ANEW"

READ_AT_START = (
    "PYTHON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NUMEXPR_", "XLA_", "JAX_", "TORCH", "PYTORCH_", "CUDA_", "HF_",
    "TRANSFORMERS_", "TOKENIZERS_", "DATASETS_", "MPL", "LD_", "HOME", "XDG_", "LANG", "LC_", "TF_", "USE_",
)  # fmt: skip
"""Prefixes of variables that the interpreter or a library reads before the program itself does."""

OF_LAUNCHERS = ("TORCHELASTIC_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES")
READ_LATER = (*OF_LAUNCHERS, "CUDA_", "TORCHINDUCTOR_", "TOKENIZERS_", "JAX_", "XLA_", "TF_")
"""Variables read when a process group is created, a device used, a model compiled or a text cut; and those of JAX,
which only matter where it has been imported. Launchers set some of them, tests and imports leave others behind."""

LITTLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"
APPLIED = {"PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "PYTHONBREAKPOINT", LITTLE}
"""Variables that also take effect in a process that is forked."""
KNOWN = {str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep), ""}
"""Folders in PYTHONPATH that also do; others may bring other versions of what was imported."""

CHANNEL = "XDPX_TESTS_CHANNEL"
"""The variable that tells a process that runs tests how to reach its copy, and what that one has imported."""

RUNS_TESTS = "import sys;exec(eval(sys.stdin.readline()))"
"""What execnet starts, for pytest-xdist, as `python -c`."""
OF_MULTIPROCESSING = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
"""How what multiprocessing starts as `python -c` begins: processes, and servers to fork them off."""

LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
"""Modules that start processes themselves; these are also forked, off a copy of the launcher in its initial state."""

TORCH = ("numpy", "torch")
TRAINER = (*TORCH, "xdpx.trainer.trainer")
BERT = (*TRAINER, "transformers.models.bert.modeling_bert")
JAX = ("numpy", "jax", "flax", "optax")
COMMANDS = (
    *TORCH, "xdpx.commands.batch", "xdpx.runs.training", "xdpx.runs.packed_ahead", "xdpx.inference.predictor",
    "xdpx.engines.pytorch.engine", "xdpx.reports.figures",
)  # fmt: skip
WITH_TORCH = {"x-run", "x-train", "x-eval", "x-pred", "x-tune"}

ALONE = re.compile(rf"jax|spmd|xdpx\.main|environ.*\b(?!{'|'.join(OF_LAUNCHERS)})({'|'.join(READ_AT_START)})")
"""Matches programs that must be started normally: these, or x-exp, set variables of JAX before importing it, and other
libraries read theirs as early."""

OF_A_TEST = re.compile(r"\b(xdpx|tests|test_\w+)\b")
LOOKS = re.compile(r"modules|importtime|environ")
"""Matches code after `-c` that asks what is imported, or sets variables before something is."""

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans below this process become its children."""

UNUSUAL: dict[str, tuple[Any, ...]] = {
    "preexec_fn": (None,), "pass_fds": ((), []), "shell": (False,), "gid": (None,), "gids": (None,), "uid": (None,),
    "umask": (-1,), "process_group": (-1, None), "close_fds": (True,), "startupinfo": (None,),
}  # fmt: skip
"""Arguments of `Popen` -> the values with which a program can be forked."""


PLAIN = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class Program(NamedTuple):
    """What a command line requests of the interpreter.

    Attributes:
        options: of the interpreter itself, such as `-X utf8`.
        warnings: its options `-W`.
        unbuffered: whether one of them is `-u`.
        kind: "-m", "-c" or "" for a file.
        name: of the module, the code, or the file.
        rest: the arguments after it.
    """

    options: tuple[str, ...]
    warnings: list[str]
    unbuffered: bool
    kind: str
    name: str
    rest: list[str]


def program_of(words: list[str]) -> Program | None:
    """Return the request of the words after `python`; None if it cannot be forked."""
    options, warnings, unbuffered, left = list[str](), list[str](), False, list(words)
    while left:
        word = left.pop(0)
        if word == "-u":
            unbuffered = True
        elif word.startswith("-W") and (left or word != "-W"):
            warnings.append(word[2:] or left.pop(0))
        elif word == "-X" and left:
            options += [word, left.pop(0)]
        elif word in {"-m", "-c"} and left:
            return Program(tuple(options), warnings, unbuffered, word, left[0], left[1:])
        elif word.endswith(".py"):
            return Program(tuple(options), warnings, unbuffered, "", word, left)
        else:
            return None
    return None


def modules_for(program: Program, folder: str) -> tuple[str, ...]:
    """Return the modules that a program started in `folder` imports anyway; () if it must be started normally.

    Code after `-c` may import JAX, or next to nothing: it is only forked off a process that has imported everything.
    """
    if program.kind == "-c":
        if program.name == RUNS_TESTS:
            return imported_by_tests()
        if program.name.startswith(OF_MULTIPROCESSING):
            return COMMANDS
        return JAX if OF_A_TEST.search(program.name) and not LOOKS.search(program.name) else ()
    name, words = program.name, program.rest
    if name in LAUNCHERS:
        name = next((word for word in words if word.endswith(".py")), "")
    file = Path(folder, name)
    own = brings_package(program, folder)
    if not own and (name == "xdpx.run" or file == ROOT / "xdpx/run.py"):
        return COMMANDS if WITH_TORCH & set(words) else ()
    text = file.read_text(encoding="utf-8", errors="replace") if name.endswith(".py") and file.is_file() else ""
    if ALONE.search(text):
        return ()
    if not own and ("transformers" in text or "Trainer" in text):
        return BERT if re.search("random_bert|tiny_bert|BertFor", text) else TRAINER
    return TORCH if "torch" in text or "xdpx" in text else ()


@cache
def imported_by_tests() -> tuple[str, ...]:
    """Return the modules that test files import at their top, and those that programs of theirs import."""
    from tests.preloaded import SAVING, SHARDING  # launchers, which are started elsewhere, do not find it

    found = {*COMMANDS, *BERT, *SHARDING, *SAVING}
    lines = list[ast.stmt]()
    for file in ROOT.glob("tests/**/test_*.py"):
        with contextlib.suppress(SyntaxError, OSError):  # pytest tells of it
            lines += ast.parse(file.read_bytes()).body
    for line in lines:
        if isinstance(line, ast.Import):
            found |= {each.name for each in line.names}
        elif isinstance(line, ast.ImportFrom) and line.module:
            found.add(line.module)
    return tuple(sorted(name for name in found if name.partition(".")[0] != "tests"))


def brings_package(program: Program, folder: str) -> bool:
    """Return whether a program started in `folder` finds another copy of the package than that of this folder."""
    file = Path(folder, next((word for word in (program.name, *program.rest) if word.endswith(".py")), ""))
    places = {Path(folder), file.parent, file.parent.parent}
    return any(place != ROOT and (place / "xdpx/__init__.py").is_file() for place in places)


class Warm:
    """Processes to fork programs off, one per kind; each is started when its kind is first requested.

    Args:
        given: the channel to an existing process.
        given_kind: the kind of its programs.
        fixed: whether no others are started.
        modules: returns what to import before a program is forked; () if it must be started normally.
    """

    def __init__(
        self,
        given: socket.socket | None = None,
        given_kind: str = "",
        fixed: bool = False,
        modules: Callable[[Program, str], tuple[str, ...]] = modules_for,
    ) -> None:
        self.owner = os.getpid()
        self.modules = modules
        self.asked: Counter[str] = Counter()
        self.channels: dict[str, socket.socket | None] = {given_kind: given} if given else {}
        self.fixed = fixed
        self.lock = threading.Lock()

    @classmethod
    def of_this_process(cls) -> Warm:
        """Return what forks the programs of tests off the copy of this process, if it was forked itself."""
        if CHANNEL not in os.environ:
            return cls()
        number, modules = json.loads(os.environ.pop(CHANNEL))
        return cls(socket.socket(fileno=number), _kind((), modules, os.environ))

    def start(
        self, words: list[str], environment: Mapping[str, str], folder: str, files: Mapping[int, int], *, session: bool
    ) -> int:
        """Fork a program, and return its process id; 0 if it must be started normally.

        Args:
            words: after the interpreter.
            environment, folder: of the program.
            files: its number of each file that it is given -> the number of that file here.
            session: whether it starts a new session.
        """
        program = program_of(words)
        if program is None or os.getpid() != self.owner or ANEW in environment or ANEW in os.environ:
            return 0
        modules = self.modules(program, folder) if os.path.isdir(folder) else ()
        if not modules:
            return 0
        kind = _kind(program.options, modules, environment)
        request = {
            **program._asdict(), "session": session, "words": words, "environment": dict(environment), "folder": folder,
            "parent": os.getpid(), "deaf": signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "like": kind,
            "files": list(files), "launches": program.name in LAUNCHERS, "runs_tests": program.name == RUNS_TESTS,
        }  # fmt: skip
        with self.lock:
            self.asked[kind] += 1
            if kind not in self.channels and not brings_package(program, folder):
                kind = next(filter(partial(_serves, kind, _of_jax(environment)), self.channels), kind)
            if kind not in self.channels and not self.fixed and modules != JAX:
                self.channels[kind] = _begun([*program.options, str(SERVER)], modules, environment)
            channel = self.channels.get(kind)
            if channel is None:
                return 0
            try:
                return _forked(channel, json.dumps(request).encode(), list(files.values()))
            except OSError:
                self.channels[kind] = None  # it has ended; from now on its programs are started normally
                return 0


def _kind(options: Sequence[str], modules: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the kind of programs with these options, which import these modules, in this environment."""
    read = {name: text for name, text in environment.items() if name.startswith(READ_AT_START) and name not in APPLIED}
    read = {name: text for name, text in read.items() if not name.startswith(READ_LATER)}
    if KNOWN.issuperset(read.get("PYTHONPATH", "").split(os.pathsep)):
        read.pop("PYTHONPATH", None)
    return json.dumps([options, modules, sorted(read.items()), _of_jax(environment) if "jax" in modules else []])


def _of_jax(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the variables that JAX reads when it is imported."""
    read = environment.items()
    return sorted([name, text] for name, text in read if name.startswith("JAX_") and name not in APPLIED)


def _serves(wanted: str, of_jax: list[list[str]], kind: str) -> bool:
    """Return whether processes of a kind differ from those wanted by nothing but further imported modules.

    Args:
        wanted: the kind wanted.
        of_jax: variables that the processes must have been given if they have imported JAX.
        kind: the other kind.
    """
    (options, modules, read, _), (its_options, its_modules, its_read, its_jax) = json.loads(wanted), json.loads(kind)
    same = (options, read) == (its_options, its_read) and ("jax" not in its_modules or of_jax == its_jax)
    return same and set(modules) <= set(its_modules)


def _begun(words: list[str], modules: tuple[str, ...], environment: Mapping[str, str]) -> socket.socket | None:
    """Start a process to fork off, and return the channel to it; None if it has ended."""
    ours, its = socket.socketpair()
    its.set_inheritable(True)
    line = [sys.executable, *words, str(its.fileno())]
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0o666) for number in range(3)]
    os.posix_spawn(sys.executable, line, {**environment, ANEW: "1"}, file_actions=nowhere)
    its.close()
    ours.sendall(_framed(json.dumps(modules)))
    return ours if ours.recv(1) else None


def _framed(text: str) -> bytes:
    return len(text.encode()).to_bytes(4, "big") + text.encode()


def _forked(channel: socket.socket, request: bytes, files: list[int]) -> int:
    """Request a program, and return its process id once it is a child of this process."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(SUBREAPER, 1, 0, 0, 0):
        return 0
    try:
        socket.send_fds(channel, [len(request).to_bytes(4, "big")], files)
        channel.sendall(request)
        answer = b""
        while len(answer) < 9:
            more = channel.recv(9 - len(answer))
            if not more:
                raise ConnectionError("the process to fork off has ended")
            answer += more
        return int.from_bytes(answer[:8], "big")
    finally:
        prctl(SUBREAPER, 0, 0, 0, 0)


def _here() -> str:
    """Return the current folder; '' if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def install(warm: Warm) -> Callable[[], None]:
    """Make `subprocess.Popen` and multiprocessing fork Python programs where possible; return what undoes this."""
    before = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    spawn_before: Callable[..., int] = util.spawnv_passfds  # type: ignore[attr-defined]
    names = list(inspect.signature(PLAIN).parameters)

    def execute(self: Any, *values: Any) -> None:
        given = dict(zip(names, (self, *values), strict=True))
        words = given["args"]
        if isinstance(words, list | tuple) and words and (given["executable"] or words[0]) == sys.executable:
            found = 0
            around = os.environ if given["env"] is None else given["env"]
            if all(given.get(name, usual[0]) in usual for name, usual in UNUSUAL.items()):
                own = (given["p2cread"], given["c2pwrite"], given["errwrite"])
                found = warm.start(
                    [os.fsdecode(word) for word in words[1:]],
                    {os.fsdecode(name): os.fsdecode(text) for name, text in around.items()},
                    os.path.join(_here(), os.fsdecode(given["cwd"] or "")),
                    {number: number if file == -1 else file for number, file in enumerate(own)},
                    session=given["start_new_session"],
                )
            if found:
                self.pid, self._child_created = found, True
                self._close_pipe_fds(*values[names.index("p2cread") - 1 :][:6])
                return
        PLAIN(self, *values)

    def spawn(path: bytes | str, words: Sequence[bytes | str], passed: Sequence[int]) -> int:
        line = [os.fsdecode(word) for word in words[1:]]
        files = {int(number): int(number) for number in (*range(3), *passed)}
        found = os.fsdecode(path) == sys.executable and warm.start(line, os.environ, _here(), files, session=False)
        return found or spawn_before(path, words, passed)

    def undo() -> None:
        subprocess.Popen._execute_child = before  # type: ignore[attr-defined]
        util.spawnv_passfds = spawn_before  # type: ignore[attr-defined]

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
    util.spawnv_passfds = spawn  # type: ignore[attr-defined]
    return undo
