"""A program that is forked off a warm process does what it does when it is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_starts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel must give orphans to an ancestor")

PROGRAMS = {
    "what it is given": (
        "import os, sys\nprint(sys.argv, sys.path[0], __name__, __file__, os.getcwd())\n"
        "print(os.environ['MORE'], sys.stdin.read())"
    ),
    "an error": "def f():\n    1 / 0\nf()",
    "an exit code": "import sys\nprint('said', flush=False)\nsys.exit(7)",
    "a text as exit code": "raise SystemExit('no, 不')",
    "the end of a program": "import atexit, threading, time\natexit.register(print, 'last')\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "an abort": "import os\nos.abort()",
    "a module that is not there": "import not_there",
    "a process of its own": """
        import multiprocessing
        def double(x): return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]), __spec__)
    """,
    "a fork of its own": "import os\nchild = os.fork()\nif not child: os._exit(3)\nprint(os.waitpid(child, 0)[1])",
    "a class to pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)",
    "a warning": "import warnings\nwarnings.warn('beware')",
    "what is called at the end": "import atexit\natexit.register(print, 'at the end')\nprint('first')",
    "a closed pipe": "import os, sys\nos.close(1)\nprint('nowhere')",
}
CODE = {
    "what it is given": "import sys\nprint(sys.argv, sys.path[0], __name__)",
    "an error": "def divide(by: 1): 1 / by\nprint(divide.__annotations__)\ndivide(0)",
}
VARIABLES = {
    "PYTHONWARNINGS": "error",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": str(warm_starts.ROOT),
}


@pytest.fixture(scope="module")
def warm() -> Iterator[warm_starts.Warm]:
    """What forks every program off a process that has imported hardly anything."""
    warm = warm_starts.Warm(modules=lambda program, folder: ("json",))
    yield warm
    for channel in warm.channels.values():
        if channel:
            channel.close()


Outcome = tuple[int, str, str]
"""Exit code, standard output, standard error."""


def run(line: list[str], folder: Path) -> Outcome:
    around = {**os.environ, "MORE": "here"}
    done = subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, input="given", cwd=folder, env=around
    )
    return done.returncode, done.stdout, done.stderr


def both(
    line: list[str], folder: Path, warm: warm_starts.Warm, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, str, str]]:
    """Return how a program ends that is started again, and how one that is forked."""
    with monkeypatch.context() as patch:
        patch.setenv(warm_starts.ANEW, "1")
        anew = run(line, folder)
    undo = warm_starts.install(warm)
    try:
        run(["nothing.py"], folder)
        before = sum(warm.asked.values())
        forked = run(line, folder)
        assert sum(warm.asked.values()) == before + 1
        assert all(warm.channels.values())
    finally:
        undo()
    return anew, forked


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_what_it_does_when_it_is_started_anew(
    name: str, warm: warm_starts.Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing.py").touch()
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAMS[name]), encoding="utf-8")
    anew, forked = both(["program.py", "a", "-b"], tmp_path, warm, monkeypatch)
    assert forked == anew


def test_a_module_is_run_as_the_interpreter_runs_it(
    warm: warm_starts.Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing.py").touch()
    (tmp_path / "mine.py").write_text("import sys\nprint(sys.argv, sys.path[0], __spec__.name, __file__)\nmissing")
    anew, forked = both(["-m", "mine", "a"], tmp_path, warm, monkeypatch)
    assert forked == anew
    anew, forked = both(["-m", "not_there"], tmp_path, warm, monkeypatch)
    assert forked == anew


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_take_effect_that_the_interpreter_reads(
    variable: str, warm: warm_starts.Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing.py").touch()
    (tmp_path / "program.py").write_text(
        "import faulthandler, sys, warnings\nprint(sys.path, sys.warnoptions, faulthandler.is_enabled())\n"
        "print(sys.stdout.write_through)\nwarnings.warn('beware')"
    )
    monkeypatch.setenv(variable, VARIABLES[variable])
    anew, forked = both(["program.py"], tmp_path, warm, monkeypatch)
    assert forked == anew
    anew, forked = both(["-W", "ignore", "program.py"], tmp_path, warm, monkeypatch)
    assert forked == anew
    assert "beware" not in anew[2]


@pytest.mark.parametrize("name", CODE)
def test_code_is_run_as_the_interpreter_runs_it(
    name: str, warm: warm_starts.Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing.py").touch()
    anew, forked = both(["-c", CODE[name], "a"], tmp_path, warm, monkeypatch)
    assert forked == anew


def test_it_is_a_child_of_the_one_that_asked_and_ends_when_it_is_told(warm: warm_starts.Warm, tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text(
        "import os, time\nprint(os.getppid(), os.getsid(0), flush=True)\ntime.sleep(600)"
    )
    undo = warm_starts.install(warm)
    try:
        for _ in range(2):
            line = [sys.executable, str(tmp_path / "sleep.py")]
            process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)
            assert process.stdout
            assert process.stdout.readline().split() == [str(os.getpid()), str(process.pid)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
            process.stdout.close()
    finally:
        undo()


def test_variables_that_an_imported_module_sets_are_set_as_if_the_program_had_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets.py").write_text("import os\nos.environ.setdefault('SET_AT_IMPORT', 'by the module')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("SET_AT_IMPORT", raising=False)
    warm = warm_starts.Warm(modules=lambda program, folder: ("sets",))
    (tmp_path / "nothing.py").touch()
    (tmp_path / "program.py").write_text("import os, sets\nprint(os.environ['SET_AT_IMPORT'])")
    for given in ("", "by the caller"):
        if given:
            monkeypatch.setenv("SET_AT_IMPORT", given)
        anew, forked = both(["program.py"], tmp_path, warm, monkeypatch)
        assert anew == forked == (0, f"{given or 'by the module'}\n", "")
    for channel in warm.channels.values():
        if channel:
            channel.close()


def test_what_is_read_at_the_start_decides_what_it_is_forked_off(tmp_path: Path) -> None:
    warm = warm_starts.Warm(modules=lambda program, folder: ("json",))
    (tmp_path / "nothing.py").touch()
    given: list[Any] = [["nothing.py"], {}, str(tmp_path), {0: 0, 1: 1, 2: 2}]
    differ = ([], {"OMP_NUM_THREADS": "2"}), (["-X", "utf8"], {}), ([], {"PYTHONPATH": str(tmp_path)})
    same = ([], {"RANK": "1"}), ([], {"JAX_PLATFORMS": "cpu"}), (["-W", "ignore"], {}), ([], VARIABLES)
    for options, around in (([], {}), *differ, *same):
        given[:2] = [*options, "nothing.py"], around
        warm.start(*given, session=False)
    assert sorted(warm.asked.values()) == [1, 1, 1, 5]
    for channel in warm.channels.values():
        if channel:
            channel.close()


def test_what_has_imported_more_serves_as_well_unless_the_program_brings_its_own_package(tmp_path: Path) -> None:
    warm = warm_starts.Warm(modules=lambda program, folder: ("json", "csv") if "more" in program.rest else ("json",))
    other = tmp_path / "other"
    (other / "xdpx").mkdir(parents=True)
    (other / "xdpx/__init__.py").touch()
    for folder in (tmp_path, other):
        (folder / "nothing.py").touch()
    begun = []
    for words, folder in ((["more"], tmp_path), ([], tmp_path), ([], other)):
        child = warm.start(["nothing.py", *words], {}, str(folder), {0: 0, 1: 1, 2: 2}, session=False)
        begun.append((bool(child), len(warm.channels)))
        if child:
            os.waitpid(child, 0)
    assert begun == [(True, 1), (True, 1), (True, 2)]
    for channel in {*warm.channels.values()} - {None}:
        channel.close()


@pytest.mark.parametrize(
    "line",
    [
        ["-c", "print()"],
        ["-m", "pip"],
        ["-I", "x.py"],
        ["xdpx/run.py", "x-io", "ls"],
        ["xdpx/run.py", "--help"],
        ["-m", "xdpx.main", "--exp=a.B"],
        ["tests/engines/spmd/two_processes.py", "1"],
    ],
)
def test_programs_that_need_nothing_heavy_are_started_anew(line: list[str]) -> None:
    program = warm_starts.program_of(line)
    assert program is None or warm_starts.modules_for(program, str(warm_starts.ROOT)) == ()
