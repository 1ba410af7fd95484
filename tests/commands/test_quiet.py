"""`--quiet` and `--version`."""

from __future__ import annotations

import logging

import pytest

from xdpx import __version__
from xdpx.logger import log
from xdpx.main import main as x_exp
from xdpx.run import main
from xdpx.utils.progress import is_quiet, on_terminal, quietly

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", ["x-train", "x-run", "x-io", "x-script"])
def test_every_command_tells_the_version(command: str, capsys: Capture) -> None:
    assert main([command, "--version"]) == 0
    assert capsys.readouterr().out == f"xdpx {__version__}\n"


def test_x_exp_tells_the_version(capsys: Capture) -> None:
    assert x_exp(["--version"]) == 0
    assert capsys.readouterr().out == f"xdpx {__version__}\n"


def test_quiet_leaves_warnings_and_is_over_afterwards(capsys: Capture) -> None:
    with quietly(wanted=True):
        log.info("unheard")
        log.warning("heard")
        assert not on_terminal()
    log.info("heard again")
    assert capsys.readouterr().err == "| warning: heard\n| heard again\n"
    assert not is_quiet()


def test_quiet_in_quiet_stays_quiet() -> None:
    with quietly(wanted=True):
        with quietly(wanted=True):
            pass
        assert is_quiet()


def test_log_files_hold_what_the_console_does_not_show() -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("xdpx").addHandler(handler)
    try:
        with quietly(wanted=True):
            log.info("kept")
    finally:
        logging.getLogger("xdpx").removeHandler(handler)
    assert heard == ["kept"]


def test_a_quiet_line_of_commands_prints_nothing(capsys: Capture) -> None:
    assert main(["x-train", "--quiet", "nothing_here"]) == 2
    assert capsys.readouterr().err.startswith("nothing_here: 1 fault")
