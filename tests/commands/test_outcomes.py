from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import xdpx
from xdpx.commands.outcomes import exit_code
from xdpx.config.faults import ConfigError, Fault


def failing(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


CASES: list[tuple[BaseException, int, str]] = [
    (ConfigError("a.hjson", [Fault("b", "is 1.")]), 2, "a.hjson: 1 fault\n  b: is 1.\n"),
    (FileNotFoundError(2, "No such file", "a.txt"), 1, "[Errno 2] No such file: 'a.txt'\n"),
    (KeyboardInterrupt(), 130, "interrupted\n"),
    (SystemExit(85), 85, ""),
    (SystemExit(None), 0, ""),
    (SystemExit("told"), 1, "told\n"),
    (MemoryError("17 GiB"), 1, "out of memory: 17 GiB"),
]


@pytest.mark.parametrize(("error", "code", "told"), CASES)
def test_each_kind_of_error_has_its_exit_code_and_no_traceback(
    error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(failing(error)) == code
    written = capsys.readouterr().err
    assert written.startswith(told)
    assert "Traceback" not in written


def test_a_cause_is_told_on_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError("cannot write checkpoint-3.pt")
    error.__cause__ = OSError(28, "No space left on device")
    exit_code(failing(error))
    assert capsys.readouterr().err == "cannot write checkpoint-3.pt; because: [Errno 28] No space left on device\n"


def test_a_bug_is_called_a_bug_with_its_traceback_and_own_code_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("xdpx_user_modules.")]:  # of other tests
        monkeypatch.delitem(sys.modules, name)
    ours: dict[str, Callable[[], int]] = {}
    exec(compile("def work():\n    raise ZeroDivisionError('x')", xdpx.__file__, "exec"), ours)
    assert exit_code(ours["work"]) == 1
    written = capsys.readouterr().err
    assert "Traceback" in written
    assert "this is a bug in xdpx" in written
    assert "your own classes" not in written
    monkeypatch.setitem(sys.modules, "xdpx_user_modules.mine", ModuleType("mine"))
    assert exit_code(ours["work"]) == 1
    assert "check your own classes first (mine.py)" in capsys.readouterr().err


def test_an_own_class_whose_init_never_calls_that_of_its_base_is_pointed_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ours: dict[str, Any] = {}
    base = "class Base:\n    def __init__(self):\n        self.kept = 1\n    def ask(self):\n        return self.kept"
    exec(compile(base, xdpx.__file__, "exec"), ours)
    mine = "class Mine(Base):\n    def __init__(self):\n        pass"
    exec(compile(mine, str(tmp_path / "mine.py"), "exec"), ours)
    assert exit_code(ours["Mine"]().ask) == 1
    written = capsys.readouterr().err
    assert f"call super().__init__ with all arguments at {tmp_path / 'mine.py'}:2." in written
    assert "this is a bug" not in written


def test_verbose_shows_the_traceback_of_every_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(failing(ConfigError("a", [Fault("b", "c.")])), verbose=True) == 2
    assert "Traceback" in capsys.readouterr().err


def test_work_that_succeeds_gives_its_own_code() -> None:
    assert exit_code(lambda: None) == 0
    assert exit_code(lambda: 3) == 3


def test_a_package_that_is_not_installed_is_named_with_the_way_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    ours: dict[str, Callable[[], int]] = {}
    exec(compile("def work():\n    import not_here.part", xdpx.__file__, "exec"), ours)
    assert exit_code(ours["work"]) == 1
    told = "the package not_here is needed for this, but is not installed. Run: pip install not_here.\n"
    assert capsys.readouterr().err == told


def test_a_module_that_an_installed_package_lacks_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    ours: dict[str, Callable[[], int]] = {}
    exec(compile("def work():\n    import numpy.not_here", xdpx.__file__, "exec"), ours)
    assert exit_code(ours["work"]) == 1
    assert "this is a bug in xdpx" in capsys.readouterr().err
