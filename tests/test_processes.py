"""Processes that are started together end together, and tell why."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests import processes


def test_when_one_fails_the_others_are_ended_and_both_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SECONDS_LEFT_ALONE", 1)
    lines = [[sys.executable, "-c", code] for code in ("raise SystemExit('no port')", "import time; time.sleep(500)")]
    first, second = processes.run_together(lines, [processes.environment()] * 2)
    assert first == (1, "no port\n")
    assert second.code == -signal.SIGABRT
    assert "time.sleep" in second.text or "Current thread" in second.text


def test_the_processes_of_one_that_takes_too_long_show_their_stacks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SECONDS_LEFT_ALONE", 1)
    ready = f"pathlib.Path({str(tmp_path / 'ready')!r})"
    waits = f"import pathlib, time\ndef for_ever():\n    {ready}.touch()\n    time.sleep(500)\nfor_ever()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    fails = f"import pathlib, time\nwhile not {ready}.exists(): time.sleep(0.1)\nraise SystemExit(1)"
    lines = [[sys.executable, "-c", code] for code in (fails, starts)]
    _, ended = processes.run_together(lines, [processes.environment()] * 2)
    assert ended.code == -signal.SIGABRT
    assert "in for_ever" in ended.text


def test_a_port_is_free_and_none_that_the_system_gives_away() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", processes.free_port()))
        assert listener.getsockname()[1] in processes.PORTS


def test_what_is_told_of_an_abort_shows_its_stack_and_no_list_of_modules() -> None:
    modules = "Extension modules: " + ", ".join(f"numpy.part_{index}" for index in range(1000))
    told = processes.told([processes.Ended(-signal.SIGABRT, f"Fatal Python error: Aborted\n{modules}\nthe end\n")])
    assert told.splitlines() == ["exit code -6", "Fatal Python error: Aborted", "the end"]


def test_a_forked_process_that_crashes_shows_its_output_and_where(tmp_path: Path) -> None:
    def crash() -> None:
        print("before it")  # noqa: T201
        os.kill(os.getpid(), signal.SIGSEGV)

    _, status = os.waitpid(processes.fork(crash, tmp_path / "words.txt"), 0)
    words = (tmp_path / "words.txt").read_text()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV
    assert words.startswith("before it\n")
    assert "in crash" in words
